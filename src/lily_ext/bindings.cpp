// The module lily._ext: Python's door to the engine, and the only file that includes nanobind. It checks and converts
// arguments, lets go of the GIL before anything takes a lock, and turns Error into the classes of lily.errors.

#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "decoder.h"
#include "encoder.h"
#include "engine.h"
#include "error.h"
#include "probe.h"
#include "sampler.h"
#include "session.h"
#include "viterbi.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lily {

namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Release = nb::call_guard<nb::gil_scoped_release>;
template <typename T> using Numpy = nb::ndarray<nb::numpy, T>;

// Arguments by the types that the stub shows. Arrays come in as any object: array_of says what is wrong with one.
template <typename T> using ArrayArgument = nb::typed<nb::object, Numpy<T>>;
using Ids = ArrayArgument<std::int32_t>;
using Halves = ArrayArgument<std::uint16_t>;
using Floats = ArrayArgument<float>;
using Dict = nb::typed<nb::dict, nb::str, nb::any>;
using Claim = std::optional<std::uint64_t>;
using Progress = std::optional<nb::typed<nb::callable, nb::object(std::int64_t, std::int64_t)>>;
using Record = std::tuple<std::string, std::int64_t, std::int64_t, std::string, std::vector<std::int64_t>>;
using Arrays = nb::typed<nb::sequence, Numpy<std::uint8_t>>;
using Records = nb::typed<nb::sequence, Record>;

[[noreturn]] void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

// ---- errors

const char *class_of(ErrorKind kind) {
    switch (kind) {
    case ErrorKind::invalid_input:
        return "InvalidInput";
    case ErrorKind::checkpoint:
        return "CheckpointError";
    case ErrorKind::unsupported_checkpoint:
        return "UnsupportedCheckpoint";
    case ErrorKind::context_overflow:
        return "ContextOverflow";
    case ErrorKind::out_of_memory:
        return "OutOfMemory";
    case ErrorKind::cancelled:
        return "Cancelled";
    case ErrorKind::numerical:
        return "NumericalError";
    case ErrorKind::device:
        return "DeviceError";
    }
    return "LilyError";
}

template <typename... Details> void set_error(ErrorKind kind, const char *message, Details... details) {
    try {
        const nb::object type = nb::module_::import_("lily.errors").attr(class_of(kind));
        const nb::object error = type(message, details...);
        PyErr_SetObject(type.ptr(), error.ptr());
    } catch (nb::python_error &failure) {
        failure.restore();
    }
}

void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const ContextOverflow &overflow) {
        set_error(overflow.kind(), overflow.what(), overflow.needed(), overflow.limit());
    } catch (const Error &error) {
        set_error(error.kind(), error.what());
    } catch (const std::system_error &error) {
        const std::string message = std::string("the system refused a lock or a thread (") + error.what() +
                                    "); ask for fewer threads, or raise the limits of this process (ulimit -u, "
                                    "ulimit -v)";
        set_error(ErrorKind::device, message.c_str());
    } catch (const std::bad_alloc &) {
        set_error(ErrorKind::out_of_memory, "the system gave no more memory; close sessions, lower max_context or top, "
                                            "end other programs, or raise a limit of this process (ulimit -v)");
    }
}

// ---- arrays in and out

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

Array array_of(nb::handle object, const std::string &name) {
    Array array;
    if (!nb::try_cast<Array>(object, array, false)) {
        refuse(name + " is a " + nb::cast<std::string>(object.type().attr("__name__")) +
               ", expected a numpy array in host memory");
    }
    std::int64_t stride = 1;
    for (std::size_t i = array.ndim(); i-- > 0;) {
        if (array.size() > 0 && array.shape(i) > 1 && array.stride(i) != stride) {
            refuse(name + " is not contiguous in memory, expected C order; pass it through numpy.ascontiguousarray");
        }
        stride *= static_cast<std::int64_t>(array.shape(i));
    }
    return array;
}

template <typename T> std::span<const T> span_of(const Array &array, const char *name, const char *dtype) {
    if (array.ndim() != 1 || array.dtype() != nb::dtype<T>()) {
        refuse(std::string(name) + " has " + std::to_string(array.ndim()) + " dimensions and " +
               std::to_string(array.itemsize()) + " bytes an element, expected one dimension of " + dtype);
    }
    return {static_cast<const T *>(array.data()), array.size()};
}

std::vector<std::int32_t> ids_of(nb::handle object) {
    const Array array = array_of(object, "tokens");
    const std::span<const std::int32_t> ids = span_of<std::int32_t>(array, "tokens", "int32");
    return {ids.begin(), ids.end()};
}

template <typename T> Numpy<T> numpy_of(std::vector<T> &&values, std::initializer_list<std::size_t> shape) {
    auto owned = std::make_unique<std::vector<T>>(std::move(values));
    T *data = owned->data();
    nb::capsule owner(owned.get(), [](void *memory) noexcept { delete static_cast<std::vector<T> *>(memory); });
    static_cast<void>(owned.release());
    return Numpy<T>(data, shape, owner);
}

// Runs work without the GIL, because it waits for a lock or computes.
template <typename Work> auto unlocked(const Work &work) {
    const nb::gil_scoped_release release;
    return work();
}

// Signals and progress, between chunks. An exception of the callback, or KeyboardInterrupt, ends the call.
Engine::Between between(const Progress &progress) {
    return [&progress](std::int64_t done, std::int64_t total) {
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) {
            throw nb::python_error();
        }
        if (progress) {
            (*progress)(done, total);
        }
    };
}

// ---- weights and config

std::map<std::string, double> numbers_of(const nb::dict &dict) {
    std::map<std::string, double> numbers;
    for (const auto &[key, value] : dict) {
        double number = 0;
        if (!nb::isinstance<nb::str>(key) || !nb::try_cast<double>(value, number)) {
            refuse("the config has " + nb::cast<std::string>(nb::repr(key)) + " = " +
                   nb::cast<std::string>(nb::repr(value)) + ", expected names with numbers");
        }
        numbers[nb::cast<std::string>(key)] = number;
    }
    return numbers;
}

WeightRecord record_of(nb::handle entry, std::size_t index) {
    static const std::map<std::string, DType> dtypes{{"U32", DType::u32}, {"BF16", DType::bf16}, {"F32", DType::f32}};
    Record fields;
    if (!nb::try_cast(entry, fields)) {
        refuse("tensors[" + std::to_string(index) + "] is " + nb::cast<std::string>(nb::repr(entry)) +
               ", expected (name, file, offset, dtype, shape)");
    }
    auto &[name, file, offset, dtype, shape] = fields;
    const auto found = dtypes.find(dtype);
    if (found == dtypes.end()) {
        throw Error(ErrorKind::unsupported_checkpoint,
                    "tensor " + name + " is " + dtype +
                        ", expected U32, BF16 or F32; convert the model with mlx_lm.convert -q --dtype bfloat16");
    }
    return {std::move(name), file, offset, found->second, std::move(shape)};
}

void make_weights(Weights *self, const Arrays &files, const Records &tensors) {
    auto arrays = std::make_shared<std::vector<Array>>();
    std::vector<std::span<const std::byte>> spans;
    for (const nb::handle file : files) {
        arrays->push_back(array_of(file, "files[" + std::to_string(spans.size()) + "]"));
        spans.push_back(std::as_bytes(span_of<std::uint8_t>(arrays->back(), "a file", "uint8")));
    }
    std::vector<WeightRecord> records;
    for (const nb::handle entry : tensors) {
        records.push_back(record_of(entry, records.size()));
    }
    new (self) Weights(std::move(spans), std::move(records), std::move(arrays));
}

void make_engine(Engine *self, std::shared_ptr<Weights> weights, const Dict &config, std::string device,
                 std::string isa, int threads, std::vector<std::string> kernels, std::int64_t max_context,
                 std::int64_t chunk) {
    const DecoderConfig decoder = DecoderConfig::from(numbers_of(config));
    const EngineOptions options{{std::move(device), std::move(isa), threads, std::move(kernels)}, max_context, chunk};
    const nb::gil_scoped_release release;
    new (self) Engine(std::move(weights), decoder, options);
}

void make_encoder(Encoder *self, std::shared_ptr<Weights> weights, const Dict &config, std::string device,
                  std::string isa, int threads, std::vector<std::string> kernels, std::int64_t max_rows) {
    const EncoderConfig encoder = EncoderConfig::from(numbers_of(config));
    const DeviceOptions options{std::move(device), std::move(isa), threads, std::move(kernels)};
    const nb::gil_scoped_release release;
    new (self) Encoder(open_device(options), std::move(weights), encoder, max_rows);
}

void make_sampler(Sampler *self, double temperature, std::int64_t top_k, double top_p, double min_p,
                  double repetition_penalty, double presence_penalty, double frequency_penalty,
                  std::map<std::int64_t, double> logit_bias, const nb::int_ &seed) {
    const std::uint64_t number = PyLong_AsUnsignedLongLong(seed.ptr());
    if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        refuse("seed is " + nb::cast<std::string>(nb::repr(seed)) + ", expected 0 to 2**64 - 1");
    }
    new (self) Sampler({temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
                        std::move(logit_bias), number});
}

// ---- probe

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

// The GIL stays held: a probe belongs to one test, and its device to one call at a time.
void bind_probe(nb::module_ &module) {
    nb::class_<Probe>(module, "Probe", "One sublayer on host arrays; bf16 travels as uint16.")
        .def(
            "__init__",
            [](Probe *self, std::string device, std::string isa, int threads, std::vector<std::string> kernels) {
                new (self) Probe(open_device({std::move(device), std::move(isa), threads, std::move(kernels)}));
            },
            "device"_a, "isa"_a = "", "threads"_a = 0, "kernels"_a = nb::list())
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
}

void bind_session(nb::module_ &module) {
    nb::class_<Snapshot>(module, "Snapshot", "A copy of a session, for any session of the same engine.")
        .def_prop_ro("position", &Snapshot::position)
        .def_prop_ro("bytes", &Snapshot::bytes);

    nb::class_<Session>(module, "Session", "One timeline of an engine.")
        .def_prop_ro(
            "tokens",
            [](const Session &session) {
                std::vector<std::int32_t> tokens = unlocked([&] { return session.tokens(); });
                const std::size_t count = tokens.size();
                return numpy_of(std::move(tokens), {count});
            },
            nb::rv_policy::automatic) // the array owns its memory; the default would tie it to the session
        .def_prop_ro("position", &Session::position, Release())
        .def_prop_ro("pending", &Session::pending, Release())
        .def_prop_ro("capacity", &Session::capacity)
        .def_prop_ro("memory", &Session::memory)
        .def("logits",
             [](const Session &session) {
                 std::vector<float> logits = unlocked([&] { return session.logits(); });
                 const std::size_t count = logits.size();
                 return numpy_of(std::move(logits), {count});
             })
        .def("cancel", &Session::cancel, "wanted"_a = true)
        .def("claim", &Session::claim, Release())
        .def("close", &Session::close, Release())
        .def("snapshot", &Session::snapshot, Release())
        .def("restore", &Session::restore, "snapshot"_a, Release())
        .def("fork", &Session::fork, Release())
        .def("reset", &Session::reset, Release());
}

void bind_engine(nb::module_ &module) {
    nb::class_<Weights>(module, "Weights", "The tensors of a checkpoint: views over its files, which it keeps alive.")
        .def("__init__", &make_weights, "files"_a, "tensors"_a);

    nb::class_<Sampler>(module, "Sampler", "Logits to tokens; its penalties count the tokens it produced.")
        .def("__init__", &make_sampler, "temperature"_a = 0.0, "top_k"_a = 0, "top_p"_a = 1.0, "min_p"_a = 0.0,
             "repetition_penalty"_a = 1.0, "presence_penalty"_a = 0.0, "frequency_penalty"_a = 0.0,
             "logit_bias"_a = nb::dict(), "seed"_a = 0)
        .def(
            "sample",
            [](Sampler &sampler, Floats logits) {
                const Array array = array_of(logits, "logits");
                const std::span<const float> values = span_of<float>(array, "logits", "float32");
                std::vector<float> scratch(values.begin(), values.end());
                return unlocked([&] { return sampler.sample(scratch); });
            },
            "logits"_a);

    nb::class_<Engine>(module, "Engine", "One model on one device.")
        .def("__init__", &make_engine, "weights"_a, "config"_a, nb::kw_only(), "device"_a = "auto", "isa"_a = "",
             "threads"_a = 0, "kernels"_a = nb::list(), "max_context"_a, "chunk"_a)
        .def_prop_ro("device_name", &Engine::device_name)
        .def_prop_ro("isa", &Engine::isa)
        .def_prop_ro("threads", &Engine::threads)
        .def_prop_ro("chunk", &Engine::chunk)
        .def_prop_ro("max_context", &Engine::max_context)
        .def_prop_ro("vocab", &Engine::vocab)
        .def("memory",
             [](Engine &engine) {
                 const MemoryReport report = unlocked([&] { return engine.memory(); });
                 return std::map<std::string, std::size_t>{{"weights_mapped", report.weights_mapped},
                                                           {"weights_copied", report.weights_copied},
                                                           {"weights_converted", report.weights_converted},
                                                           {"scratch", report.scratch},
                                                           {"sessions", report.sessions}};
             })
        .def("session", &Engine::session, Release())
        .def(
            "prefill",
            [](Engine &engine, Session &session, Ids tokens, Progress progress, Claim claim) {
                const std::vector<std::int32_t> ids = ids_of(tokens);
                unlocked([&] { engine.prefill(session, ids, between(progress), claim); });
            },
            "session"_a, "tokens"_a, "progress"_a = nb::none(), "claim"_a = nb::none())
        .def("step", &Engine::step, "session"_a, "sampler"_a, "claim"_a = nb::none(), Release())
        .def(
            "forward",
            [](Engine &engine, Ids tokens, Progress progress) {
                const std::vector<std::int32_t> ids = ids_of(tokens);
                std::vector<float> logits = unlocked([&] { return engine.forward(ids, between(progress)); });
                return numpy_of(std::move(logits), {ids.size(), static_cast<std::size_t>(engine.vocab())});
            },
            "tokens"_a, "progress"_a = nb::none())
        .def(
            "score",
            [](Engine &engine, Ids tokens, std::int64_t top, Progress progress) {
                const std::vector<std::int32_t> ids = ids_of(tokens);
                Scores scores = unlocked([&] { return engine.score(ids, top, between(progress)); });
                const std::size_t count = ids.size();
                const auto width = static_cast<std::size_t>(top);
                return std::tuple(
                    numpy_of(std::move(scores.logprob), {count - 1}), numpy_of(std::move(scores.ids), {count, width}),
                    numpy_of(std::move(scores.top_logprobs), {count, width}), numpy_of(std::move(scores.lse), {count}));
            },
            "tokens"_a, "top"_a, "progress"_a = nb::none())
        .def("close", &Engine::close, Release());
}

// A view of logits [rows, Viterbi::kTags], f32.
std::span<const float> tag_logits(const Array &array) {
    if (array.ndim() != 2 || array.shape(1) != Viterbi::kTags || array.dtype() != nb::dtype<float>()) {
        refuse("the logits have " + std::to_string(array.ndim()) + " dimensions and " +
               std::to_string(array.itemsize()) + " bytes an element, expected float32 [rows, " +
               std::to_string(Viterbi::kTags) + "]");
    }
    return {static_cast<const float *>(array.data()), array.size()};
}

Numpy<std::int32_t> tags_of(std::vector<std::int32_t> &&tags) {
    const std::size_t count = tags.size();
    return numpy_of(std::move(tags), {count});
}

void bind_encoder(nb::module_ &module) {
    nb::class_<Encoder>(module, "Encoder", "A bidirectional tagger on one device.")
        .def("__init__", &make_encoder, "weights"_a, "config"_a, nb::kw_only(), "device"_a = "auto", "isa"_a = "",
             "threads"_a = 0, "kernels"_a = nb::list(), "max_rows"_a)
        .def_prop_ro("device_name", &Encoder::device_name)
        .def_prop_ro("max_rows", &Encoder::max_rows)
        .def("memory", [](Encoder &encoder) { return unlocked([&] { return encoder.memory(); }); })
        .def(
            "logits",
            [](Encoder &encoder, Ids ids, Ids lengths) {
                const std::vector<std::int32_t> tokens = ids_of(ids);
                const std::vector<std::int32_t> windows = ids_of(lengths);
                Classification result = unlocked([&] { return encoder.classify(tokens, windows); });
                const auto labels = static_cast<std::size_t>(encoder.config().labels);
                return std::tuple(numpy_of(std::move(result.logits), {tokens.size(), labels}),
                                  numpy_of(std::move(result.sensitivity), {windows.size()}));
            },
            "ids"_a, "lengths"_a)
        .def("close", &Encoder::close, Release());

    nb::class_<Viterbi>(module, "Viterbi", "The best path of tags, decided as the logits come in.")
        .def(nb::init<float, float>(), "b_bias"_a = 0.0F, "e_bias"_a = 0.0F)
        .def(
            "push",
            [](Viterbi &viterbi, Floats logits) {
                const Array array = array_of(logits, "logits");
                const std::span<const float> values = tag_logits(array);
                return tags_of(unlocked([&] { return viterbi.push(values); }));
            },
            "logits"_a)
        .def("finish", [](Viterbi &viterbi) { return tags_of(viterbi.finish()); });

    module.def(
        "viterbi",
        [](Floats logits, float b_bias, float e_bias) {
            const Array array = array_of(logits, "logits");
            const std::span<const float> values = tag_logits(array);
            return tags_of(unlocked([&] {
                Viterbi viterbi(b_bias, e_bias);
                std::vector<std::int32_t> tags = viterbi.push(values);
                const std::vector<std::int32_t> rest = viterbi.finish();
                tags.insert(tags.end(), rest.begin(), rest.end());
                return tags;
            }));
        },
        "logits"_a, "b_bias"_a = 0.0F, "e_bias"_a = 0.0F, "The best path of tags through logits [rows, 37].");
}

} // namespace

} // namespace lily

NB_MODULE(_ext, module) {
    module.doc() = "The compiled part of lily. Private: use the classes of lily.";
    nb::register_exception_translator(lily::translate);
    // What is alive when Python ends is no leak: a forked child leaves the objects of its parent alone, and programs
    // exit in the middle of a decode. nanobind would list them on stderr.
    nb::set_leak_warnings(false);
    module.attr("MAX_THREADS") = lily::kMaxThreads;
    module.def("instruction_sets", &lily::instruction_sets, "Instruction sets that this machine can run, best first.");
    module.def("usable_cpus", &lily::usable_cpus, "Processors that this process may use.");
    lily::bind_session(module);
    lily::bind_engine(module);
    lily::bind_encoder(module);
    lily::bind_probe(module);
}
