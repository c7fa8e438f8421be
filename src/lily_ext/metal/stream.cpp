// See stream.h.

#include "stream.h"

#include <algorithm>

#include "../error.h"

namespace lily::metal {

namespace {

std::size_t byte_size(const Tensor &tensor) {
    std::size_t bytes = tensor.dtype == DType::bf16 ? 2 : 4;
    for (int i = 0; i < tensor.rank; ++i) {
        bytes *= static_cast<std::size_t>(tensor.dims[i]);
    }
    return bytes;
}

std::string pipeline_key(const std::string &kernel, const std::vector<Constant> &constants) {
    std::string key = kernel;
    for (const Constant &constant : constants) {
        key += ' ' + std::to_string(constant.index) + '=' + std::to_string(constant.value);
    }
    return key;
}

const DeviceBuffer &device_buffer(const Tensor &tensor, const std::string &kernel) {
    const auto *buffer = dynamic_cast<const DeviceBuffer *>(tensor.buffer);
    if (buffer == nullptr) {
        throw Error(ErrorKind::invalid_input, "a tensor of the kernel " + kernel + " has no memory of the device");
    }
    return *buffer;
}

} // namespace

std::string kernel_name(const std::string &kernel, Packing packing) {
    switch (packing) {
    case Packing::affine4:
        return kernel + "_affine4";
    case Packing::affine8:
        return kernel + "_affine8";
    case Packing::bf16:
        return kernel + "_bf16";
    }
    return kernel;
}

Dispatch &Dispatch::add(const Tensor &tensor, Role role, Access access, Bytes read, Bytes written) {
    const std::size_t bytes = byte_size(tensor);
    const auto whole = static_cast<std::int64_t>(bytes);
    const std::int64_t unique = access == Access::write ? 0 : read.unique.value_or(whole);
    arguments_.push_back(
        {tensor, bytes, access,
         Traffic{.role = role,
                 .read = static_cast<std::uint64_t>(unique),
                 .written = static_cast<std::uint64_t>(access == Access::read ? 0 : written.unique.value_or(whole)),
                 .loaded = static_cast<std::uint64_t>(access == Access::write ? 0 : read.loaded.value_or(unique))}});
    return *this;
}

Dispatch &Dispatch::read(const Tensor &tensor, Role role, Bytes read) {
    return add(tensor, role, Access::read, read, {});
}

Dispatch &Dispatch::write(const Tensor &tensor, Role role, Bytes written) {
    return add(tensor, role, Access::write, {}, written);
}

Dispatch &Dispatch::update(const Tensor &tensor, Role role, Bytes read, Bytes written) {
    return add(tensor, role, Access::update, read, written);
}

Dispatch &Dispatch::matrix(const Matrix &matrix, std::optional<std::int64_t> rows_read,
                           std::optional<std::int64_t> rows_loaded) {
    const std::int64_t rows = matrix.experts * matrix.rows;
    const std::int64_t unique = rows_read.value_or(rows);
    const std::int64_t loaded = rows_loaded.value_or(unique);
    const auto part = [&](const Tensor &tensor) {
        const std::int64_t row_bytes = static_cast<std::int64_t>(byte_size(tensor)) / rows;
        read(tensor, Role::weights, {.unique = unique * row_bytes, .loaded = loaded * row_bytes});
    };
    part(matrix.codes);
    if (matrix.packing == Packing::bf16) {
        read(matrix.codes, Role::weights, {.unique = 0});
        return read(matrix.codes, Role::weights, {.unique = 0});
    }
    part(matrix.scales);
    part(matrix.biases);
    return *this;
}

Dispatch &Dispatch::constant(std::uint32_t index, std::uint32_t value) {
    constants_.push_back({index, value});
    return *this;
}

Dispatch &Dispatch::threadgroup(std::uint32_t bytes) {
    threadgroup_bytes_ = bytes;
    return *this;
}

void Dispatch::finish(Size groups, Size threads, const Tensor *indirect) {
    const Pipeline &pipeline = stream_.pipeline(kernel_, constants_);
    CommandBuffer &commands = *stream_.open_;
    if (indirect != nullptr) { // as an argument, so that it takes part in the order; taken out below
        read(*indirect, Role::scratch);
    }
    const bool barrier = stream_.conflicts(*this);
    if (barrier) {
        commands.barrier();
        stream_.touched_.clear();
    }
    for (const Argument &argument : arguments_) {
        if (argument.traffic.role != Role::weights) { // nobody writes weights
            stream_.touched_.push_back({argument.view.buffer, argument.view.offset,
                                        argument.view.offset + argument.bytes, argument.access != Access::read});
        }
    }
    if (indirect != nullptr) {
        arguments_.pop_back();
    }
    commands.set_pipeline(pipeline);
    std::uint32_t index = 0;
    for (const Argument &argument : arguments_) {
        commands.set_buffer(index++, device_buffer(argument.view, kernel_), argument.view.offset, argument.bytes,
                            argument.access);
    }
    commands.set_bytes(index, args_.data(), args_bytes_);
    if (threadgroup_bytes_ > 0) {
        commands.set_threadgroup_memory(0, threadgroup_bytes_);
    }
    if (indirect != nullptr) {
        commands.dispatch_indirect(device_buffer(*indirect, kernel_), indirect->offset, threads);
    } else {
        commands.dispatch(groups, threads);
    }
    if (stream_.records_ != nullptr) {
        DispatchRecord record{kernel_, groups, threads, stream_.commits_, barrier, indirect != nullptr, {}};
        for (const Argument &argument : arguments_) {
            record.traffic.push_back(argument.traffic);
        }
        stream_.records_->push_back(std::move(record));
    }
}

const Pipeline &Stream::pipeline(const std::string &kernel, const std::vector<Constant> &constants) {
    std::unique_ptr<Pipeline> &made = pipelines_[pipeline_key(kernel, constants)];
    if (!made) {
        made = device_.pipeline(kernel, constants);
    }
    return *made;
}

bool Stream::conflicts(const Dispatch &dispatch) const {
    return std::any_of(touched_.begin(), touched_.end(), [&](const Touched &touched) {
        return std::any_of(dispatch.arguments_.begin(), dispatch.arguments_.end(), [&](const auto &argument) {
            return argument.view.buffer == touched.buffer && argument.view.offset < touched.end &&
                   touched.begin < argument.view.offset + argument.bytes &&
                   (touched.written || argument.access != Access::read);
        });
    });
}

void Stream::begin() {
    open_ = device_.commands();
    touched_.clear();
}

void Stream::commit() {
    open_->commit();
    ++commits_;
    running_.push_back(std::move(open_));
}

void Stream::wait(std::size_t left) {
    while (running_.size() > left) {
        const std::unique_ptr<CommandBuffer> oldest = std::move(running_.front());
        running_.pop_front();
        try {
            oldest->wait();
        } catch (...) {
            running_.clear(); // what came after it may have read what it did not write
            throw;
        }
    }
}

} // namespace lily::metal
