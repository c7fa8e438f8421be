// The tensors of a checkpoint by name. Weights is the table over the bytes of the files, checked once; WeightViews puts
// it on a backend and hands out Tensor and Matrix views for a graph. Whether matrices are copied is the backend's
// business; the few small vectors are converted to f32. Nothing here knows a file's name, JSON or the shape of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "arena.h"
#include "backend.h"
#include "tensor.h"

namespace lily {

struct WeightRecord {
    std::string name;
    std::int64_t file = 0;   // index into the files
    std::int64_t offset = 0; // bytes from the start of the file, of any alignment
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
};

class Weights {
  public:
    // keep_alive owns the memory behind the files. Throws Error(checkpoint) when a record does not lie inside its file.
    Weights(std::vector<std::span<const std::byte>> files, std::vector<WeightRecord> records,
            std::shared_ptr<void> keep_alive);

    const std::vector<std::span<const std::byte>> &files() const { return files_; }
    const std::unordered_map<std::string, WeightRecord> &records() const { return records_; }

  private:
    std::vector<std::span<const std::byte>> files_;
    std::unordered_map<std::string, WeightRecord> records_;
    std::shared_ptr<void> keep_alive_;
};

// Which packings a matrix may have. A router or gate of fewer than 8 bits is known to ruin the answers; any takes plain
// bf16 too.
enum class Bits { four_or_eight, eight, any };

class WeightViews {
  public:
    WeightViews(std::shared_ptr<const Weights> weights, Backend &backend);

    // name.weight, name.scales and name.biases: [rows, cols], and [experts, rows, cols] for stacked ones. Throws
    // Error(checkpoint) when one is missing or has another shape, Error(unsupported_checkpoint) for other packings.
    Matrix matrix(const std::string &name, std::int64_t rows, std::int64_t cols, Bits bits = Bits::four_or_eight);
    Matrix stacked(const std::string &name, std::int64_t experts, std::int64_t rows, std::int64_t cols);
    // Small vectors, bf16 or f32 in the file, f32 here. A NaN or infinity in one is an Error(checkpoint).
    Tensor vector(const std::string &name, std::int64_t size);
    // The same for a small matrix [rows, cols].
    Tensor dense(const std::string &name, std::int64_t rows, std::int64_t cols);
    Tensor exponential(const std::string &name, std::int64_t size); // e^x of each
    // [channels, width, 1] of the file as [width, channels].
    Tensor taps(const std::string &name, std::int64_t channels, std::int64_t width);

    // Throws Error(unsupported_checkpoint) if a tensor was never asked for: a graph that ignores weights is another
    // model. expected: which model this is, for the message.
    void require_all_used(const std::string &expected) const;

    std::size_t mapped_bytes() const;                          // of the files
    std::size_t copied_bytes() const { return copied_bytes_; } // that the device could not read where they lie
    std::size_t converted_bytes() const { return converted_.bytes(); }

  private:
    const WeightRecord &use(const std::string &name);
    Tensor view(const WeightRecord &record) const;
    Matrix packed(const std::string &name, std::int64_t experts, std::int64_t rows, std::int64_t cols, bool stacked,
                  Bits bits);
    std::vector<float> values(const std::string &name, const std::vector<std::int64_t> &shape);
    Tensor store(const std::vector<float> &values, std::initializer_list<std::int64_t> dims);

    std::shared_ptr<const Weights> weights_;
    Backend &backend_;
    std::vector<std::unique_ptr<Buffer>> mapped_;           // one a file
    std::unordered_map<std::string, std::size_t> places_{}; // in the buffer of its file
    std::size_t copied_bytes_ = 0;
    Arena converted_;
    std::unordered_map<std::string, bool> used_;
};

} // namespace lily
