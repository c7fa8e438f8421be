// The module lily._ext: Python's door to the engine. Only its files (bindings.h, probe_bindings.cpp) include nanobind. It checks and converts
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

#include "bindings.h"
#include "decoder.h"
#include "encoder.h"
#include "engine.h"
#include "error.h"
#include "sampler.h"
#include "session.h"
#include "viterbi.h"
#include "weights.h"

namespace lily {

namespace {

using Claim = std::optional<std::uint64_t>;
using Progress = std::optional<nb::typed<nb::callable, nb::object(std::int64_t, std::int64_t)>>;
using Record = std::tuple<std::string, std::int64_t, std::int64_t, std::string, std::vector<std::int64_t>>;
using Arrays = nb::typed<nb::sequence, Numpy<std::uint8_t>>;
using Records = nb::typed<nb::sequence, Record>;

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

std::vector<std::int32_t> ids_of(nb::handle object) {
    const Array array = array_of(object, "tokens");
    const std::span<const std::int32_t> ids = span_of<std::int32_t>(array, "tokens", "int32");
    return {ids.begin(), ids.end()};
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
                 std::int64_t chunk, bool byte_inputs) {
    const DecoderConfig decoder = DecoderConfig::from(numbers_of(config));
    const EngineOptions options{
        {std::move(device), std::move(isa), threads, std::move(kernels)}, max_context, chunk, byte_inputs};
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

void bind_session(nb::module_ &module) {
    nb::class_<Snapshot>(module, "Snapshot", "A copy of a session, for any session of the same engine.")
        .def_prop_ro("position", &Snapshot::position)
        .def_prop_ro("bytes", &Snapshot::bytes)
        .def("same_bits", [](const Snapshot &one, const Snapshot &other) { return one == other; }, "other"_a);

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
        .def("__init__", &make_engine, "weights"_a, "config"_a, nb::kw_only(), "device"_a = "cpu", "isa"_a = "",
             "threads"_a = 0, "kernels"_a = nb::list(), "max_context"_a, "chunk"_a, "byte_inputs"_a = false)
        .def_prop_ro("device_name", &Engine::device_name)
        .def_prop_ro("isa", &Engine::isa)
        .def_prop_ro("threads", &Engine::threads)
        .def_prop_ro("chunk", &Engine::chunk)
        .def_prop_ro("byte_inputs", &Engine::byte_inputs)
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
        .def("__init__", &make_encoder, "weights"_a, "config"_a, nb::kw_only(), "device"_a = "cpu", "isa"_a = "",
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
    nanobind::register_exception_translator(lily::translate);
    // What is alive when Python ends is no leak: a forked child leaves the objects of its parent alone, and programs
    // exit in the middle of a decode. nanobind would list them on stderr.
    nanobind::set_leak_warnings(false);
    module.attr("MAX_THREADS") = lily::kMaxThreads;
    module.def("instruction_sets", &lily::instruction_sets, "Instruction sets that this machine can run, best first.");
    module.def("usable_cpus", &lily::usable_cpus, "Processors that this process may use.");
    lily::bind_session(module);
    lily::bind_engine(module);
    lily::bind_encoder(module);
    lily::bind_probe(module);
    lily::bind_trace(module);
}
