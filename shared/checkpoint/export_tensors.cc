#include "shared/checkpoint/export_tensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "shared/archive/zip.h"
#include "shared/base/hash.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/pickle.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {
namespace {

// One dict of tensors in the pickle (protocol 2) of a torch.save file. Each tensor has its own
// storage in C order, numbered "0", "1", … in the given order.

struct PickledPart {
  std::string name;
  std::vector<TensorSpec> tensors;
  const TiedNames& tied;
};

constexpr std::string_view kTorchPrefix = "torch.";

// Appends pickle opcodes. Unless stated otherwise, each pushes one value onto the stack.
class PickleWriter {
 public:
  PickleWriter() { op(op::kProto).bytes(2, 1); }

  PickleWriter& op(uint8_t code) {
    text_ += static_cast<char>(code);
    return *this;
  }
  PickleWriter& bytes(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  PickleWriter& text(std::string_view value) {
    op(op::kBinUnicode).bytes(value.size(), 4).text_ += value;
    return *this;
  }
  // Like Python, uses the shortest encoding.
  PickleWriter& number(uint64_t value) {
    if (value < 0x100) return op(op::kBinInt1).bytes(value, 1);
    if (value < 0x10000) return op(op::kBinInt2).bytes(value, 2);
    if (value < 0x80000000) return op(op::kBinInt).bytes(value, 4);
    return op(op::kLong1).bytes(sizeof value + 1, 1).bytes(value, sizeof value).bytes(0, 1);
  }
  PickleWriter& name(std::string_view module, std::string_view word) {
    op(op::kGlobal).text_ += std::string(module) + '\n' + std::string(word) + '\n';
    return *this;
  }
  PickleWriter& numbers(const std::vector<int64_t>& values) {
    op(op::kMark);
    for (const int64_t value : values) number(static_cast<uint64_t>(value));
    return op(op::kTuple);
  }
  PickleWriter& tensor(const TensorSpec& spec, size_t storage);
  std::string finish() { return std::move(op(op::kStop).text_); }

 private:
  std::string text_;
};

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    // Like PyTorch, an extent of 0 counts as 1. If the product exceeds 63 bits, the tensor is empty
    // and its strides are irrelevant.
    const int64_t extent = shape[i] > 0 ? shape[i] : 1;
    if (__builtin_mul_overflow(strides[i], extent, &strides[i - 1])) strides[i - 1] = 1;
  }
  return strides;
}

// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()). If PyTorch has
// no storage type for the dtype, _rebuild_tensor_v3 with an UntypedStorage, followed by the dtype.
PickleWriter& PickleWriter::tensor(const TensorSpec& spec, size_t storage) {
  const std::string_view type = storage_type_name(spec.dtype);
  const bool is_typed = !type.empty();
  name("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  op(op::kMark).op(op::kMark).text("storage");
  name(is_typed ? "torch" : "torch.storage", is_typed ? type : "UntypedStorage");
  text(std::to_string(storage)).text("cpu");
  number(is_typed ? static_cast<uint64_t>(spec.elements()) : spec.bytes());
  op(op::kTuple).op(op::kBinPersId).number(0);
  numbers(spec.shape).numbers(strides_of(spec.shape)).op(op::kNewFalse);
  name("collections", "OrderedDict").op(op::kEmptyTuple).op(op::kReduce);
  if (!is_typed) name("torch", torch_dtype_name(spec.dtype).substr(kTorchPrefix.size()));
  return op(op::kTuple).op(op::kReduce);
}

void write_dict(PickleWriter& pickle, const PickledPart& part, size_t first_storage) {
  pickle.op(op::kEmptyDict).op(op::kMark);
  size_t storage = first_storage;
  for (const TensorSpec& spec : part.tensors) pickle.text(spec.name).tensor(spec, storage++);
  // As torch.save writes tied parameters: another tensor of the same storage.
  for (const auto& [name, same] : part.tied) {
    const auto found = std::ranges::find(part.tensors, same, &TensorSpec::name);
    if (found == part.tensors.end() ||
        std::ranges::count(part.tensors, name, &TensorSpec::name) > 0)
      continue;
    const auto index = static_cast<size_t>(found - part.tensors.begin());
    pickle.text(name).tensor(*found, first_storage + index);
  }
  pickle.op(op::kSetItems);
}

// {name: tensor, …}
std::string pickle_tensors(const PickledPart& part) {
  PickleWriter pickle;
  write_dict(pickle, part, 0);
  return pickle.finish();
}

// {"model": {name: tensor, …}, …, "step": 1200}; storages are numbered consecutively across parts.
std::string pickle_parts(const std::vector<PickledPart>& parts, uint64_t step) {
  PickleWriter pickle;
  size_t storage = 0;
  pickle.op(op::kEmptyDict).op(op::kMark);
  for (const PickledPart& part : parts) {
    pickle.text(part.name);
    write_dict(pickle, part, storage);
    storage += part.tensors.size();
  }
  pickle.text("step").number(step).op(op::kSetItems);
  return pickle.finish();
}

constexpr size_t kBufferBytes = 1 << 20;

std::string parent_directory(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<NewFile> NewFile::create(FileSystem& files, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0)
    return Status(StatusCode::kAlreadyExists,
                  path + ": already exists; remove it, or choose another name");
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.empty()) return Status(StatusCode::kInvalidArgument, path + ": is not a file name");
  std::string temporary = temporary_path(path);
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(temporary, kNewFile, 0644));
  return NewFile(files, path, std::move(temporary), std::move(fd));
}

NewFile::~NewFile() {
  if (fd_.get() < 0) return;
  static_cast<void>(files_->remove_file(temporary_));
}

Status NewFile::append(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) STOKER_RETURN_IF_ERROR(flush());
  if (bytes.size() >= kBufferBytes) return files_->write(fd_.get(), bytes, temporary_);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status NewFile::flush() {
  const Status status = buffer_.empty() ? Status() : files_->write(fd_.get(), buffer_, temporary_);
  buffer_.clear();
  return status;
}

Status NewFile::commit() {
  STOKER_RETURN_IF_ERROR(flush());
  STOKER_RETURN_IF_ERROR(files_->sync(fd_.get(), temporary_));
  STOKER_RETURN_IF_ERROR(files_->rename_noreplace(temporary_, path_));
  if (::close(fd_.release()) != 0) return Status::from_errno(errno, "close " + path_);
  return files_->sync_directory(parent_directory(path_));
}

namespace {

constexpr uint64_t kCopyBytes = 4 << 20;
// As in PyTorch, so that tensors can be used from a memory map.
constexpr uint64_t kStorageAlignment = 64;
constexpr char kArchiveFolder[] = "archive/";  // PyTorch's default if the file has no name
constexpr size_t kIdDigits = 40;

using Append = std::function<Status(std::span<const std::byte>)>;

Status copy_tensor(const TensorRangeSource& file, const TensorSpec& spec,
                   std::vector<std::byte>& chunk, const Append& append, const OnBytes& on_bytes) {
  for (uint64_t at = 0; at < spec.bytes(); at += kCopyBytes) {
    chunk.resize(std::min(kCopyBytes, spec.bytes() - at));
    STOKER_RETURN_IF_ERROR(file.read_part(spec.name, at, chunk));
    STOKER_RETURN_IF_ERROR(append(chunk));
    if (on_bytes) on_bytes(chunk.size());
  }
  return {};
}

struct Source {
  TensorSpec spec;  // with its name in the exported file
  const ExportPart* part = nullptr;
  std::string name;  // its name in the part
  bool is_transposed = false;
};

// A matrix with rows and columns exchanged.
Status copy_transposed(const TensorRangeSource& file, const TensorSpec& spec,
                       std::vector<std::byte>& chunk, const Append& append,
                       const OnBytes& on_bytes) {
  const auto rows = static_cast<size_t>(spec.shape[0]),
             columns = static_cast<size_t>(spec.shape[1]);
  const auto element = static_cast<size_t>(dtype_bytes(spec.dtype));
  std::vector<std::byte> matrix(spec.bytes());
  STOKER_RETURN_IF_ERROR(file.read_part(spec.name, 0, matrix));
  chunk.resize(rows * element);
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row)
      std::memcpy(&chunk[row * element], &matrix[(row * columns + column) * element], element);
    STOKER_RETURN_IF_ERROR(append(chunk));
    if (on_bytes) on_bytes(chunk.size());
  }
  return {};
}

Status rename(const ExportPart& part, Source& source) {
  auto theirs = part.rename(source.spec.name);
  if (!theirs)
    return Status(StatusCode::kInvalidArgument,
                  "tensor '" + source.name + "' has no name in this format");
  source.spec.name = std::move(theirs->name);
  source.is_transposed = theirs->is_transposed && source.spec.shape.size() == 2;
  if (source.is_transposed) std::ranges::reverse(source.spec.shape);
  return {};
}

// An id with the length of the one that PyTorch computes from the archive's content; equal content
// has equal ids.
std::string serialization_id(const std::string& pickle) {
  std::string digits;
  for (const char c : sha256_hex(pickle)) digits += static_cast<char>('0' + c % 10);
  return digits.substr(0, kIdDigits);
}

Status write_sources(std::vector<Source> sources,
                     const std::map<std::string, std::string>& metadata, NewFile& out,
                     const OnBytes& on_bytes) {
  for (const Source& source : sources) STOKER_RETURN_IF_ERROR(check_tensor_name(source.spec.name));
  // Like make_safetensors_layout(): largest element size first.
  std::ranges::stable_sort(sources, std::ranges::greater(),
                           [](const Source& source) { return dtype_bytes(source.spec.dtype); });
  TensorHeader header{{}, metadata};
  uint64_t offset = 0;
  for (const Source& source : sources) {
    header.tensors.push_back({source.spec, offset, offset + source.spec.bytes()});
    offset += source.spec.bytes();
  }
  const std::string head = format_tensor_header(header);
  STOKER_RETURN_IF_ERROR(out.append(std::as_bytes(std::span(head))));
  std::vector<std::byte> chunk;
  const Append append = [&out](std::span<const std::byte> bytes) { return out.append(bytes); };
  for (const Source& source : sources) {
    const TensorRangeSource& file = *source.part->file;
    const TensorSpec& spec = *file.find(source.name);
    STOKER_RETURN_IF_ERROR(source.is_transposed
                               ? copy_transposed(file, spec, chunk, append, on_bytes)
                               : copy_tensor(file, spec, chunk, append, on_bytes));
  }
  return {};
}

// "exp_avg.fc.weight" is "optim.state.fc.weight.exp_avg".
std::string state_dict_name(const ExportPart& part, const std::string& name) {
  const size_t dot = name.find('.');
  if (part.name != "optimizer" || dot == std::string::npos) return part.name + '.' + name;
  return "optim.state." + name.substr(dot + 1) + '.' + name.substr(0, dot);
}

}  // namespace

Status export_safetensors(std::span<const ExportPart> parts,
                          const std::map<std::string, std::string>& metadata, NewFile& out,
                          const OnBytes& on_bytes) {
  std::vector<Source> sources;
  for (const ExportPart& part : parts) {
    for (const TensorSpec& spec : part.file->tensors()) {
      Source& source = sources.emplace_back(Source{spec, &part, spec.name});
      if (part.rename) STOKER_RETURN_IF_ERROR(rename(part, source));
      if (parts.size() > 1) source.spec.name = part.name + '.' + spec.name;
    }
  }
  return write_sources(std::move(sources), metadata, out, on_bytes);
}

Status export_state_dict(std::span<const ExportPart> parts, NewFile& out, const OnBytes& on_bytes) {
  std::vector<Source> sources;
  const auto add = [&sources](const ExportPart& part, const TensorSpec& spec,
                              const std::string& name) {
    Source& source = sources.emplace_back(Source{spec, &part, spec.name});
    source.spec.name = state_dict_name(part, name);
  };
  for (const ExportPart& part : parts) {
    for (const TensorSpec& spec : part.file->tensors()) add(part, spec, spec.name);
    for (const auto& [name, same] : part.tied)
      if (const TensorSpec* const spec = part.file->find(same);
          spec != nullptr && part.file->find(name) == nullptr)
        add(part, *spec, name);
  }
  return write_sources(std::move(sources), {{"format", "pt"}}, out, on_bytes);
}

Status export_torch(std::span<const ExportPart> parts, uint64_t step, NewFile& out,
                    const OnBytes& on_bytes) {
  std::vector<PickledPart> dicts;
  for (const ExportPart& part : parts)
    dicts.push_back({part.name, part.file->tensors(), part.tied});
  const std::string pickle =
      parts.size() == 1 ? pickle_tensors(dicts.front()) : pickle_parts(dicts, step);
  const std::string folder = kArchiveFolder;
  archive::ZipWriter zip([&out](std::span<const std::byte> bytes) { return out.append(bytes); });
  STOKER_RETURN_IF_ERROR(zip.add(folder + "data.pkl", pickle));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".format_version", "1"));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".storage_alignment", std::to_string(kStorageAlignment)));
  STOKER_RETURN_IF_ERROR(zip.add(folder + "byteorder", "little"));
  std::vector<std::byte> chunk;
  const Append append = [&zip](std::span<const std::byte> bytes) { return zip.append(bytes); };
  size_t key = 0;
  for (const ExportPart& part : parts) {
    for (const TensorSpec& spec : part.file->tensors()) {
      STOKER_RETURN_IF_ERROR(
          zip.begin(folder + "data/" + std::to_string(key++), spec.bytes(), kStorageAlignment));
      STOKER_RETURN_IF_ERROR(copy_tensor(*part.file, spec, chunk, append, on_bytes));
    }
  }
  STOKER_RETURN_IF_ERROR(zip.add(folder + "version", "3\n"));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".data/serialization_id", serialization_id(pickle)));
  return zip.finish();
}

}  // namespace stoker::checkpoint
