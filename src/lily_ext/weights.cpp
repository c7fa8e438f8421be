// See weights.h.

#include "weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "error.h"

namespace lily {

namespace {

constexpr std::size_t kConvertedBlock = std::size_t{1} << 18;

std::string text_of(const std::vector<std::int64_t> &shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    }
    return text + "]";
}

const char *name_of(DType dtype) {
    switch (dtype) {
    case DType::u32:
        return "U32";
    case DType::i32:
        return "I32";
    case DType::bf16:
        return "BF16";
    case DType::f32:
        return "F32";
    }
    return "?";
}

[[noreturn]] void broken(const std::string &message) { throw Error(ErrorKind::checkpoint, message); }

[[noreturn]] void unsupported(const std::string &message) { throw Error(ErrorKind::unsupported_checkpoint, message); }

void require(const WeightRecord &record, DType dtype, const std::vector<std::int64_t> &shape) {
    if (record.dtype != dtype || record.shape != shape) {
        broken("tensor " + record.name + " is " + name_of(record.dtype) + " " + text_of(record.shape) + ", expected " +
               name_of(dtype) + " " + text_of(shape) + "; convert the model again with mlx_lm.convert -q");
    }
}

// The range of a record, checked in arithmetic that cannot overflow.
void check_range(const WeightRecord &record, const std::vector<std::span<const std::byte>> &files) {
    if (record.file < 0 || record.file >= static_cast<std::int64_t>(files.size())) {
        broken("tensor " + record.name + " lies in file " + std::to_string(record.file) + ", but there are " +
               std::to_string(files.size()) + " files");
    }
    if (record.shape.empty() || record.shape.size() > 4) {
        broken("tensor " + record.name + " has " + std::to_string(record.shape.size()) +
               " dimensions, expected 1 to 4");
    }
    const auto size = static_cast<std::int64_t>(files[static_cast<std::size_t>(record.file)].size());
    std::int64_t elements = size / static_cast<std::int64_t>(size_of(record.dtype));
    bool fits = record.offset >= 0 && record.offset <= size;
    std::int64_t bytes = static_cast<std::int64_t>(size_of(record.dtype));
    for (const std::int64_t dim : record.shape) {
        if (dim < 1) {
            broken("tensor " + record.name + " has the shape " + text_of(record.shape) +
                   ", expected every dimension to be 1 or more");
        }
        fits = fits && dim <= elements;
        if (fits) {
            elements /= dim;
            bytes *= dim;
        }
    }
    if (!fits || bytes > size - record.offset) {
        broken("tensor " + record.name + ", " + name_of(record.dtype) + " " + text_of(record.shape) + " at byte " +
               std::to_string(record.offset) + ", does not fit its file of " + std::to_string(size) +
               " bytes; the file is truncated or its header is wrong: fetch it again");
    }
}

// Its type and shape, over no memory.
Tensor tensor_of(const WeightRecord &record) {
    Tensor tensor{nullptr, 0, record.dtype, static_cast<int>(record.shape.size()), {1, 1, 1, 1}};
    std::copy(record.shape.begin(), record.shape.end(), tensor.dims);
    return tensor;
}

} // namespace

Weights::Weights(std::vector<std::span<const std::byte>> files, std::vector<WeightRecord> records,
                 std::shared_ptr<void> keep_alive)
    : files_(std::move(files)), keep_alive_(std::move(keep_alive)) {
    for (WeightRecord &record : records) {
        check_range(record, files_);
        const std::string name = record.name;
        if (!records_.emplace(name, std::move(record)).second) {
            broken("tensor " + name + " is there twice, expected every name once");
        }
    }
}

WeightViews::WeightViews(std::shared_ptr<const Weights> weights, Backend &backend)
    : weights_(std::move(weights)), backend_(backend), converted_(backend, "the converted weights", kConvertedBlock) {
    std::vector<std::vector<const WeightRecord *>> records(weights_->files().size());
    for (const auto &[name, record] : weights_->records()) {
        records[static_cast<std::size_t>(record.file)].push_back(&record);
    }
    for (std::size_t file = 0; file < records.size(); ++file) {
        std::sort(records[file].begin(), records[file].end(),
                  [](const WeightRecord *one, const WeightRecord *other) { return one->offset < other->offset; });
        std::vector<Extent> extents;
        for (const WeightRecord *record : records[file]) {
            extents.push_back({static_cast<std::size_t>(record->offset), byte_size(tensor_of(*record))});
        }
        Mapping mapping = backend_.map(weights_->files()[file], extents);
        mapped_.push_back(std::move(mapping.buffer));
        copied_bytes_ += mapping.copied;
        for (std::size_t i = 0; i < extents.size(); ++i) {
            places_[records[file][i]->name] = mapping.offsets[i];
        }
    }
}

std::size_t WeightViews::mapped_bytes() const {
    std::size_t total = 0;
    for (const std::span<const std::byte> file : weights_->files()) {
        total += file.size();
    }
    return total;
}

const WeightRecord &WeightViews::use(const std::string &name) {
    const auto found = weights_->records().find(name);
    if (found == weights_->records().end()) {
        broken("tensor " + name + " is missing, expected it among the " + std::to_string(weights_->records().size()) +
               " tensors of the checkpoint; it is incomplete or of another architecture");
    }
    used_[name] = true;
    return found->second;
}

void WeightViews::require_all_used(const std::string &expected) const {
    std::size_t unused = 0;
    std::string first; // in the order of names, so that the message is the same in every run
    for (const auto &[name, record] : weights_->records()) {
        if (!used_.contains(name)) {
            first = unused == 0 || name < first ? name : first;
            ++unused;
        }
    }
    if (unused > 0) {
        unsupported(std::to_string(unused) + " tensors are not part of this architecture, the first is " + first +
                    "; expected " + expected);
    }
}

Tensor WeightViews::view(const WeightRecord &record) const {
    Tensor tensor = tensor_of(record);
    tensor.buffer = mapped_[static_cast<std::size_t>(record.file)].get();
    tensor.offset = places_.at(record.name);
    return tensor;
}

Matrix WeightViews::matrix(const std::string &name, std::int64_t rows, std::int64_t cols, Bits bits) {
    return packed(name, 1, rows, cols, false, bits);
}

Matrix WeightViews::stacked(const std::string &name, std::int64_t experts, std::int64_t rows, std::int64_t cols) {
    return packed(name, experts, rows, cols, true, Bits::four_or_eight);
}

Matrix WeightViews::packed(const std::string &name, std::int64_t experts, std::int64_t rows, std::int64_t cols,
                           bool stacked, Bits bits) {
    const auto shape = [&](std::int64_t last) {
        return stacked ? std::vector<std::int64_t>{experts, rows, last} : std::vector<std::int64_t>{rows, last};
    };
    const WeightRecord &codes = use(name + ".weight");
    if (codes.dtype == DType::bf16 && bits == Bits::any) {
        require(codes, DType::bf16, shape(cols));
        return Matrix{Packing::bf16, view(codes), {}, {}, experts, rows, cols};
    }
    if (codes.dtype != DType::u32) {
        unsupported("tensor " + codes.name + " is " + name_of(codes.dtype) + " " + text_of(codes.shape) +
                    ", expected " + (bits == Bits::any ? "BF16, or " : "") +
                    "U32: affine codes of 4 or 8 bits; quantise with mlx_lm.convert -q --q-bits 4");
    }
    // The width says how many bits a code has; everything else about the shape is known.
    const std::int64_t words = codes.shape.back();
    require(codes, DType::u32, shape(words));
    const std::int64_t width = words * 32 / cols;
    if (words * 32 % cols != 0 || (width != 4 && width != 8)) {
        unsupported("tensor " + codes.name + " packs " + std::to_string(cols) + " inputs into " +
                    std::to_string(words) +
                    " words of 32 bits, expected 4 or 8 bits an input: " + std::to_string(cols / 8) + " or " +
                    std::to_string(cols / 4) + " words; quantise with mlx_lm.convert -q --q-bits 4");
    }
    if (bits == Bits::eight && width != 8) {
        unsupported(
            "tensor " + codes.name + " has " + std::to_string(width) +
            " bits, expected 8: a router or shared-expert gate of fewer bits sends tokens to the wrong experts; "
            "convert again with a recent mlx_lm.convert, which keeps these at 8");
    }
    const WeightRecord &scales = use(name + ".scales");
    const std::int64_t groups = scales.shape.back();
    if (groups * kGroup != cols && cols % groups == 0) {
        unsupported("tensor " + scales.name + " has groups of " + std::to_string(cols / groups) +
                    " inputs, expected 64; quantise with mlx_lm.convert -q --q-group-size 64");
    }
    const WeightRecord &biases = use(name + ".biases");
    require(scales, DType::bf16, shape(cols / kGroup));
    require(biases, DType::bf16, shape(cols / kGroup));
    return Matrix{
        width == 4 ? Packing::affine4 : Packing::affine8, view(codes), view(scales), view(biases), experts, rows, cols};
}

std::vector<float> WeightViews::values(const std::string &name, const std::vector<std::int64_t> &shape) {
    const WeightRecord &record = use(name);
    require(record, record.dtype == DType::f32 ? DType::f32 : DType::bf16, shape);
    std::size_t count = 1;
    for (const std::int64_t dim : shape) {
        count *= static_cast<std::size_t>(dim);
    }
    const std::byte *from =
        weights_->files()[static_cast<std::size_t>(record.file)].data() + static_cast<std::size_t>(record.offset);
    std::vector<float> values(count);
    if (record.dtype == DType::f32) {
        std::memcpy(values.data(), from, count * sizeof(float));
    } else {
        for (std::size_t i = 0; i < count; ++i) {
            std::uint16_t half = 0;
            std::memcpy(&half, from + 2 * i, sizeof half);
            values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (!std::isfinite(values[i])) {
            broken("tensor " + name + " holds " + std::to_string(values[i]) + " at element " + std::to_string(i) +
                   ", expected finite numbers; the file is damaged: fetch it again");
        }
    }
    return values;
}

Tensor WeightViews::store(const std::vector<float> &values, std::initializer_list<std::int64_t> dims) {
    const Tensor tensor = converted_.take(DType::f32, dims);
    backend_.write(*tensor.buffer, tensor.offset, std::as_bytes(std::span(values)));
    return tensor;
}

Tensor WeightViews::vector(const std::string &name, std::int64_t size) { return store(values(name, {size}), {size}); }

Tensor WeightViews::dense(const std::string &name, std::int64_t rows, std::int64_t cols) {
    return store(values(name, {rows, cols}), {rows, cols});
}

Tensor WeightViews::exponential(const std::string &name, std::int64_t size) {
    std::vector<float> result = values(name, {size});
    for (float &value : result) {
        const float power = value;
        value = std::exp(power);
        if (!std::isfinite(value)) {
            broken("tensor " + name + " holds " + std::to_string(power) +
                   ", expected a number whose exponential is finite; the file is damaged: fetch it again");
        }
    }
    return store(result, {size});
}

Tensor WeightViews::taps(const std::string &name, std::int64_t channels, std::int64_t width) {
    const std::vector<float> from = values(name, {channels, width, 1});
    std::vector<float> result(from.size());
    for (std::int64_t channel = 0; channel < channels; ++channel) {
        for (std::int64_t tap = 0; tap < width; ++tap) {
            result[static_cast<std::size_t>(tap * channels + channel)] =
                from[static_cast<std::size_t>(channel * width + tap)];
        }
    }
    return store(result, {width, channels});
}

} // namespace lily
