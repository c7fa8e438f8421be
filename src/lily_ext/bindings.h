// What the files of the module lily._ext share: arguments as the stub shows them, arrays in and out, and the GIL. Included
// by the files named after it only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "error.h"

namespace lily {

namespace nb = nanobind;
using namespace nb::literals;

using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Release = nb::call_guard<nb::gil_scoped_release>;
template <typename T> using Numpy = nb::ndarray<nb::numpy, T>;

// Arguments by the types that the stub shows. Arrays come in as any object: array_of says what is wrong with one.
template <typename T> using ArrayArgument = nb::typed<nb::object, Numpy<T>>;
using Ids = ArrayArgument<std::int32_t>;
using Halves = ArrayArgument<std::uint16_t>;
using Floats = ArrayArgument<float>;
using Dict = nb::typed<nb::dict, nb::str, nb::any>;

[[noreturn]] inline void refuse(const std::string &message) { throw Error(ErrorKind::invalid_input, message); }

inline Array array_of(nb::handle object, const std::string &name) {
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

inline std::map<std::string, double> numbers_of(const nb::dict &dict) {
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

// Each binds what its name says.
void bind_probe(nb::module_ &module);
void bind_trace(nb::module_ &module);

} // namespace lily
