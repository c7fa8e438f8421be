// Runs one sublayer on arrays from standard input and writes the results to standard output: the door to the kernels
// of another machine, under an emulator, where Python itself is not built for it. tests/test_neon.py is the other side.
// Only what travels is here; the sublayers are reached through the probe, as in the other tests.
//
// A value is one line and the bytes that it announces:  n NUMBER | a DTYPE RANK DIMS... | m PACKING PARTS | f FIELDS.
// A matrix is followed by its arrays, fields by a line with a name before each value. A result is an array.

#include <cstdio>
#include <exception>
#include <iostream>
#include <list>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "engine.h"
#include "error.h"
#include "probe.h"

namespace {

using namespace lily;

using Value = std::variant<double, HostArray, HostMatrix, HostFields>;

std::istringstream line() {
    std::string text;
    if (!std::getline(std::cin, text)) {
        throw std::runtime_error("the input ends early");
    }
    return std::istringstream(text);
}

// Arrays of the input; each lies at whatever address its memory has.
std::list<std::vector<std::byte>> kept;

HostArray array(std::istringstream &rest) {
    static const std::map<std::string, std::pair<DType, std::size_t>> dtypes{{"uint16", {DType::bf16, 2}},
                                                                             {"float32", {DType::f32, 4}},
                                                                             {"int32", {DType::i32, 4}},
                                                                             {"uint32", {DType::u32, 4}}};
    std::string name;
    std::size_t rank = 0;
    rest >> name >> rank;
    const auto [dtype, size] = dtypes.at(name);
    HostArray array{{}, dtype, std::vector<std::int64_t>(rank)};
    std::size_t bytes = size;
    for (std::int64_t &dim : array.shape) {
        rest >> dim;
        bytes *= static_cast<std::size_t>(dim);
    }
    // A byte more than asked for, and the data after it: weights of a checkpoint have no alignment either.
    std::vector<std::byte> &memory = kept.emplace_back(bytes + 1);
    std::cin.read(reinterpret_cast<char *>(memory.data()) + 1, static_cast<std::streamsize>(bytes));
    array.bytes = std::span(memory).subspan(1);
    return array;
}

Value value();

HostMatrix matrix(std::istringstream &rest) {
    HostMatrix matrix;
    int parts = 0;
    rest >> matrix.packing >> parts;
    HostArray *const all[] = {&matrix.codes, &matrix.scales, &matrix.biases};
    for (int i = 0; i < parts; ++i) {
        *all[i] = std::get<HostArray>(value());
    }
    return matrix;
}

HostFields fields(std::istringstream &rest) {
    int count = 0;
    rest >> count;
    HostFields fields;
    for (int i = 0; i < count; ++i) {
        const std::string name = line().str();
        fields[name] = std::visit(
            [](auto &&part) -> HostFields::mapped_type {
                if constexpr (std::is_same_v<std::decay_t<decltype(part)>, HostFields>) {
                    throw std::runtime_error("fields inside fields");
                } else {
                    return part;
                }
            },
            value());
    }
    return fields;
}

Value value() {
    std::istringstream rest = line();
    std::string kind;
    rest >> kind;
    if (kind == "a") {
        return array(rest);
    }
    if (kind == "m") {
        return matrix(rest);
    }
    if (kind == "f") {
        return fields(rest);
    }
    double number = 0;
    rest >> number;
    return number;
}

void write(const HostResult &result) {
    std::cout << result.shape.size();
    for (const std::int64_t dim : result.shape) {
        std::cout << ' ' << dim;
    }
    std::cout << ' ' << result.bytes.size() << '\n';
    std::cout.write(reinterpret_cast<const char *>(result.bytes.data()),
                    static_cast<std::streamsize>(result.bytes.size()));
}

template <typename... Results> void write(const std::tuple<Results...> &results) {
    std::apply([](const auto &...one) { (write(one), ...); }, results);
}

void run(Probe &probe, const std::string &word) {
    const auto a = [] { return std::get<HostArray>(value()); };
    const auto m = [] { return std::get<HostMatrix>(value()); };
    const auto f = [] { return std::get<HostFields>(value()); };
    const auto n = [] { return std::get<double>(value()); };
    const auto eps = [&n] { return static_cast<float>(n()); };
    const auto whole = [&n] { return static_cast<std::int64_t>(n()); };
    // One after another: the arguments of a call have no order.
    if (word == "norm") {
        const HostArray x = a(), weight = a();
        write(probe.norm(x, weight, eps()));
    } else if (word == "matmul") {
        const HostArray x = a();
        const HostMatrix w = m();
        write(probe.matmul(x, w, whole()));
    } else if (word == "embed") {
        const HostMatrix table = m();
        write(probe.embed(table, a()));
    } else if (word == "attention" || word == "gated_delta") {
        const HostFields shape = f(), weights = f();
        const HostArray x = a(), first = a(), second = a();
        const std::int64_t position = whole();
        write(word == "attention" ? probe.attention(shape, weights, x, first, second, position)
                                  : probe.gated_delta(shape, weights, x, first, second, position));
    } else if (word == "moe" || word == "mlp") {
        const HostFields shape = f(), weights = f();
        write(word == "moe" ? probe.moe(shape, weights, a()) : probe.mlp(shape, weights, a()));
    } else if (word == "bidirectional") {
        const HostFields shape = f(), weights = f();
        const HostArray turns = a(), x = a();
        write(probe.bidirectional(shape, weights, turns, x, a()));
    } else if (word == "classify") {
        const HostFields weights = f();
        const float small = eps();
        const HostArray x = a();
        write(probe.classify(weights, small, x, a()));
    } else if (word == "head") {
        const HostFields weights = f();
        const float small = eps();
        write(probe.head(weights, small, a()));
    } else {
        throw std::runtime_error("no sublayer is called " + word);
    }
}

} // namespace

// driver ISA THREADS INPUTS WORD, where INPUTS of affine products are taken as "bf16" or as "bytes"
int main(int count, char **arguments) {
    try {
        if (count != 5) {
            throw std::runtime_error(
                "expected an instruction set, a number of threads, a kind of inputs and a sublayer");
        }
        Probe probe(open_device({"cpu", arguments[1], std::stoi(arguments[2]), {}}));
        probe.byte_inputs = std::string(arguments[3]) == "bytes";
        run(probe, arguments[4]);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
