// The parts of the module lily._ext that only tests and reports use: the probe, the witness and the trace.

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "decoder.h"
#include "engine.h"
#include "probe.h"
#include "trace.h"
#include "weights.h"
#include "witness.h"

namespace lily {

namespace {

struct Element {
    nb::dlpack::dtype type;
    const char *name;
    DType dtype;
};

const Element kElements[] = {
    {nb::dtype<std::uint16_t>(), "uint16", DType::bf16},
    {nb::dtype<float>(), "float32", DType::f32},
    {nb::dtype<std::int32_t>(), "int32", DType::i32},
    {nb::dtype<std::uint32_t>(), "uint32", DType::u32},
};

// Views of the caller's arrays, kept alive for one call.
class HostReader {
  public:
    HostArray array(nb::handle object, const std::string &name) {
        const Array &array = kept_.emplace_back(array_of(object, name));
        HostArray host{{static_cast<const std::byte *>(array.data()), array.nbytes()}, DType::f32, {}};
        const char *type = nullptr;
        for (const Element &element : kElements) {
            if (array.dtype() == element.type) {
                host.dtype = element.dtype;
                type = element.name;
            }
        }
        if (type == nullptr) {
            refuse(name + " has " + std::to_string(array.itemsize()) +
                   " bytes an element of another kind, expected uint16 (bf16), float32, int32 or uint32");
        }
        for (std::size_t i = 0; i < array.ndim(); ++i) {
            host.shape.push_back(static_cast<std::int64_t>(array.shape(i)));
        }
        return host;
    }

    HostMatrix matrix(const nb::dict &dict, const std::string &name) {
        HostMatrix matrix;
        for (const auto &[key, value] : dict) {
            const auto field = nb::cast<std::string>(key);
            if (field == "packing") {
                matrix.packing = nb::cast<std::string>(value);
            } else if (field == "codes" || field == "scales" || field == "biases") {
                HostArray &part = field == "codes" ? matrix.codes : (field == "scales" ? matrix.scales : matrix.biases);
                part = array(value, name + " " + field);
            } else {
                refuse(name + " has an unknown part '" + field + "', expected packing, codes, scales and biases");
            }
        }
        return matrix;
    }

    HostFields fields(const nb::dict &dict) {
        HostFields fields;
        for (const auto &[key, value] : dict) {
            const auto name = nb::cast<std::string>(key);
            double number = 0;
            if (nb::isinstance<nb::dict>(value)) {
                fields[name] = matrix(nb::borrow<nb::dict>(value), name);
            } else if (nb::try_cast<double>(value, number)) {
                fields[name] = number;
            } else {
                fields[name] = array(value, name);
            }
        }
        return fields;
    }

  private:
    std::vector<Array> kept_;
};

template <typename T> Numpy<T> numpy_of(HostResult &&result) {
    auto owned = std::make_unique<std::vector<std::byte>>(std::move(result.bytes));
    void *data = owned->data();
    nb::capsule owner(owned.get(), [](void *memory) noexcept { delete static_cast<std::vector<std::byte> *>(memory); });
    static_cast<void>(owned.release());
    const std::vector<std::size_t> shape(result.shape.begin(), result.shape.end());
    return Numpy<T>(data, shape.size(), shape.data(), owner);
}

template <typename A, typename B, typename C> auto numpy_of(std::tuple<HostResult, HostResult, HostResult> &&results) {
    auto &[x, first, second] = results;
    return std::tuple(numpy_of<A>(std::move(x)), numpy_of<B>(std::move(first)), numpy_of<C>(std::move(second)));
}

nb::dict dict_of(const metal::DispatchRecord &record) {
    static const char *const roles[] = {"weights", "cache", "state", "activations", "scratch"};
    const auto size = [](metal::Size of) { return std::tuple(of.x, of.y, of.z); };
    nb::list traffic;
    for (const metal::Traffic &one : record.traffic) {
        traffic.append(std::tuple(roles[static_cast<std::size_t>(one.role)], one.read, one.written, one.loaded));
    }
    nb::dict dict;
    dict["kernel"] = record.kernel;
    dict["groups"] = size(record.groups);
    dict["threads"] = size(record.threads);
    dict["commit"] = record.commit;
    dict["after_barrier"] = record.after_barrier;
    dict["indirect"] = record.indirect;
    dict["traffic"] = traffic;
    return dict;
}

} // namespace

void bind_trace(nb::module_ &module) {
    nb::class_<Trace>(module, "Trace", "The work of a decoder, encoded and counted but not run.")
        .def(
            "__init__",
            [](Trace *self, std::shared_ptr<Weights> weights, const Dict &config, std::int64_t max_context,
               std::int64_t rows) {
                new (self) Trace(std::move(weights), DecoderConfig::from(numbers_of(config)), max_context, rows);
            },
            "weights"_a, "config"_a, nb::kw_only(), "max_context"_a, "rows"_a)
        .def(
            "step",
            [](Trace &trace, std::int64_t position, std::int64_t rows) -> nb::typed<nb::list, Dict> {
                nb::list records;
                for (const metal::DispatchRecord &record : trace.step(position, rows)) {
                    records.append(dict_of(record));
                }
                return records;
            },
            "position"_a, "rows"_a);
}

// The GIL stays held: a probe belongs to one test, and its device to one call at a time.
void bind_probe(nb::module_ &module) {
    nb::class_<Probe>(module, "Probe", "One sublayer on host arrays; bf16 travels as uint16.")
        .def(
            "__init__",
            [](Probe *self, std::string device, std::string isa, int threads, std::vector<std::string> kernels) {
                new (self) Probe(open_device({std::move(device), std::move(isa), threads, std::move(kernels)}));
            },
            "device"_a, "isa"_a = "", "threads"_a = 0, "kernels"_a = nb::list())
        .def_rw("byte_inputs", &Probe::byte_inputs)
        .def_rw("evict", &Probe::evict)
        .def_ro("seconds", &Probe::seconds)
        .def_prop_ro("isa", &Probe::isa)
        .def_prop_ro("threads", &Probe::threads)
        .def(
            "norm",
            [](Probe &probe, Halves x, Floats weight, float eps) {
                HostReader reader;
                return numpy_of<std::uint16_t>(probe.norm(reader.array(x, "x"), reader.array(weight, "weight"), eps));
            },
            "x"_a, "weight"_a, "eps"_a)
        .def(
            "matmul",
            [](Probe &probe, Halves x, Dict matrix, std::int64_t expert) {
                HostReader reader;
                return numpy_of<float>(probe.matmul(reader.array(x, "x"), reader.matrix(matrix, "matrix"), expert));
            },
            "x"_a, "matrix"_a, "expert"_a = 0)
        .def(
            "embed",
            [](Probe &probe, Dict table, Ids ids) {
                HostReader reader;
                return numpy_of<std::uint16_t>(probe.embed(reader.matrix(table, "table"), reader.array(ids, "ids")));
            },
            "table"_a, "ids"_a)
        .def(
            "attention",
            [](Probe &probe, Dict shape, Dict weights, Halves x, Halves keys, Halves values, std::int64_t position) {
                HostReader reader;
                return numpy_of<std::uint16_t, std::uint16_t, std::uint16_t>(
                    probe.attention(reader.fields(shape), reader.fields(weights), reader.array(x, "x"),
                                    reader.array(keys, "keys"), reader.array(values, "values"), position));
            },
            "shape"_a, "weights"_a, "x"_a, "keys"_a, "values"_a, "position"_a)
        .def(
            "gated_delta",
            [](Probe &probe, Dict shape, Dict weights, Halves x, Floats state, Halves window, std::int64_t position) {
                HostReader reader;
                return numpy_of<std::uint16_t, float, std::uint16_t>(
                    probe.gated_delta(reader.fields(shape), reader.fields(weights), reader.array(x, "x"),
                                      reader.array(state, "state"), reader.array(window, "window"), position));
            },
            "shape"_a, "weights"_a, "x"_a, "state"_a, "window"_a, "position"_a)
        .def(
            "moe",
            [](Probe &probe, Dict shape, Dict weights, Halves x) {
                HostReader reader;
                return numpy_of<std::uint16_t>(
                    probe.moe(reader.fields(shape), reader.fields(weights), reader.array(x, "x")));
            },
            "shape"_a, "weights"_a, "x"_a)
        .def(
            "bidirectional",
            [](Probe &probe, Dict shape, Dict weights, Floats turns, Halves x, Ids starts) {
                HostReader reader;
                return numpy_of<std::uint16_t>(probe.bidirectional(reader.fields(shape), reader.fields(weights),
                                                                   reader.array(turns, "turns"), reader.array(x, "x"),
                                                                   reader.array(starts, "starts")));
            },
            "shape"_a, "weights"_a, "turns"_a, "x"_a, "starts"_a)
        .def(
            "mlp",
            [](Probe &probe, Dict shape, Dict weights, Halves x) {
                HostReader reader;
                return numpy_of<std::uint16_t>(
                    probe.mlp(reader.fields(shape), reader.fields(weights), reader.array(x, "x")));
            },
            "shape"_a, "weights"_a, "x"_a)
        .def(
            "classify",
            [](Probe &probe, Dict weights, float eps, Halves x, Ids starts) {
                HostReader reader;
                auto [logits, scores] =
                    probe.classify(reader.fields(weights), eps, reader.array(x, "x"), reader.array(starts, "starts"));
                return std::tuple(numpy_of<float>(std::move(logits)), numpy_of<float>(std::move(scores)));
            },
            "weights"_a, "eps"_a, "x"_a, "starts"_a)
        .def(
            "head",
            [](Probe &probe, Dict weights, float eps, Halves x) {
                HostReader reader;
                auto [logits, token] = probe.head(reader.fields(weights), eps, reader.array(x, "x"));
                return std::tuple(numpy_of<float>(std::move(logits)), numpy_of<std::int32_t>(std::move(token)));
            },
            "weights"_a, "eps"_a, "x"_a);
    nb::class_<Witness>(module, "Witness", "A probe on metal:host, and what its dispatches said and did.")
        .def(nb::init<const std::vector<std::string> &>(), "kernels"_a)
        .def_prop_ro("probe", &Witness::probe)
        .def("take", [](Witness &witness) -> nb::typed<nb::list, Dict> {
            const Testimony testimony = witness.take();
            nb::list records;
            for (std::size_t i = 0; i < testimony.said.size(); ++i) {
                nb::list touched;
                for (const metal::Touch &one : testimony.seen.at(i)) {
                    touched.append(std::tuple(one.place, one.bytes, one.read, one.written, one.loaded));
                }
                nb::dict record = dict_of(testimony.said[i]);
                record["touched"] = touched;
                records.append(record);
            }
            return records;
        });
    module.def(
        "read_peak", &read_peak, "isa"_a, "threads"_a, "bytes"_a, "passes"_a, nb::call_guard<nb::gil_scoped_release>(),
        "What the threads read together: bytes of a pass, `bytes` for each thread, and the seconds of each pass.");
    module.def(
        "product_peak", &product_peak, "isa"_a, "threads"_a, "numbers"_a, "pieces"_a, "passes"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Products of f32, bf16 or bytes that a pass adds up, 0 where there is no such instruction, and the seconds.");
}

} // namespace lily
