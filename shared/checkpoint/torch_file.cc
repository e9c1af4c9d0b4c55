#include "shared/checkpoint/torch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shared/archive/zip.h"
#include "shared/base/regular_file.h"
#include "shared/checkpoint/pickle.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {
namespace {

constexpr uint64_t kMaxPickleBytes = uint64_t{64} << 20;
constexpr uint64_t kReadBytes = 1 << 20;
constexpr char kPickleName[] = "data.pkl";
constexpr char kByteOrderName[] = "byteorder";

uint32_t crc32_of(uint32_t so_far, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(so_far, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

// The zip archive of a torch.save file: its pickle and its storages.
class TorchArchive {
 public:
  static Result<TorchArchive> open(UniqueFd fd, const std::string& path_in_messages);

  const std::string& path() const { return file_.path; }
  // The content of data.pkl, with verified checksum.
  Result<std::vector<std::byte>> read_pickle() const;
  // kCorrupt: the storage does not exist or is too small.
  Status check_storage(const std::string& key, uint64_t bytes) const;
  // Reads a range of a storage that was validated by check_storage(). The first call reads the
  // complete storage to verify its checksum.
  Status read(const std::string& key, uint64_t offset, std::span<std::byte> out) const;

 private:
  TorchArchive() = default;
  Status find_members();
  Status check_byte_order() const;
  const archive::ZipMember* find(const std::string& name) const;  // without the prefix
  Status corrupt(const std::string& what) const;
  Status verify_checksum(const archive::ZipMember& member, uint64_t begin) const;

  UniqueFd fd_;
  archive::ArchiveFile file_;
  // By name without the archive's top-level directory.
  std::map<std::string, archive::ZipMember> members_;
  bool has_checksums_ = true;
  // Storages with verified checksum: key -> offset of the data.
  mutable std::map<std::string, uint64_t> checked_;
};

Result<TorchArchive> TorchArchive::open(UniqueFd fd, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const struct stat info,
                          regular_file(fd.get(), path, StatusCode::kCorrupt));
  TorchArchive archive;
  archive.fd_ = std::move(fd);
  archive.file_ = {
      .path = path,
      .size = static_cast<uint64_t>(info.st_size),
      .read = [raw = archive.fd_.get(), path](uint64_t offset, std::span<std::byte> bytes) {
        return read_exactly(raw, offset, bytes, path);
      }};
  STOKER_RETURN_IF_ERROR(archive.find_members());
  STOKER_RETURN_IF_ERROR(archive.check_byte_order());
  return archive;
}

Status TorchArchive::corrupt(const std::string& what) const {
  return Status(StatusCode::kCorrupt, file_.path + ": " + what);
}

// All members are in one top-level directory, named after the original file.
Status TorchArchive::find_members() {
  STOKER_ASSIGN_OR_RETURN(const auto members, archive::read_zip_directory(file_));
  std::string folder;
  for (const archive::ZipMember& member : members) {
    const size_t slash = member.name.find('/');
    if (slash == std::string::npos || member.name.substr(slash + 1) != kPickleName) continue;
    if (!folder.empty()) return corrupt("has two files " + std::string(kPickleName));
    folder = member.name.substr(0, slash + 1);
  }
  if (folder.empty())
    return corrupt("is a zip archive, but not from torch.save: it has no " +
                   std::string(kPickleName));
  for (const archive::ZipMember& member : members) {
    if (!member.name.starts_with(folder)) continue;
    const std::string name = member.name.substr(folder.size());
    if (!members_.emplace(name, member).second)
      return corrupt("has two members " + printable(member.name));
  }
  // torch.save can be configured not to compute checksums; they are all 0 then.
  has_checksums_ = find(kPickleName)->crc32 != 0;
  return {};
}

const archive::ZipMember* TorchArchive::find(const std::string& name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

Status TorchArchive::check_byte_order() const {
  const archive::ZipMember* const member = find(kByteOrderName);
  // Written by PyTorch before 2.1, in the byte order of the machine.
  if (member == nullptr) return {};
  std::string order(std::min<uint64_t>(member->bytes, 16), '\0');
  STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, *member));
  if (!member->is_deflated)
    STOKER_RETURN_IF_ERROR(file_.read(begin, std::as_writable_bytes(std::span(order))));
  if (order == "little") return {};
  return corrupt("byte order '" + printable(order) + "' is not supported; only little");
}

Result<std::vector<std::byte>> TorchArchive::read_pickle() const {
  const archive::ZipMember& member = *find(kPickleName);
  if (member.is_deflated)
    return corrupt("its members are compressed; torch.save stores them uncompressed");
  if (member.bytes > kMaxPickleBytes)
    return corrupt("its " + std::string(kPickleName) + " has " + std::to_string(member.bytes) +
                   " bytes; the limit is " + std::to_string(kMaxPickleBytes));
  STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, member));
  std::vector<std::byte> bytes(member.bytes);
  STOKER_RETURN_IF_ERROR(file_.read(begin, bytes));
  if (has_checksums_ && crc32_of(0, bytes) != member.crc32)
    return corrupt("checksum mismatch of " + printable(member.name));
  return bytes;
}

Status TorchArchive::check_storage(const std::string& key, uint64_t bytes) const {
  const archive::ZipMember* const member = find("data/" + key);
  if (member == nullptr) return corrupt("has no storage '" + printable(key) + "'");
  if (member->is_deflated)
    return corrupt("its members are compressed; torch.save stores them uncompressed");
  if (member->bytes >= bytes) return {};
  return corrupt("storage '" + printable(key) + "' has " + std::to_string(member->bytes) +
                 " bytes; expected " + std::to_string(bytes));
}

Status TorchArchive::verify_checksum(const archive::ZipMember& member, uint64_t begin) const {
  if (!has_checksums_) return {};
  std::vector<std::byte> chunk(std::min(kReadBytes, member.bytes));
  uint32_t sum = 0;
  for (uint64_t at = 0; at < member.bytes; at += chunk.size()) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), member.bytes - at));
    STOKER_RETURN_IF_ERROR(file_.read(begin + at, part));
    sum = crc32_of(sum, part);
  }
  if (sum == member.crc32) return {};
  return corrupt("checksum mismatch of " + printable(member.name));
}

Status TorchArchive::read(const std::string& key, uint64_t offset, std::span<std::byte> out) const {
  auto checked = checked_.find(key);
  if (checked == checked_.end()) {
    const archive::ZipMember& member = *find("data/" + key);
    STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, member));
    STOKER_RETURN_IF_ERROR(verify_checksum(member, begin));
    checked = checked_.emplace(key, begin).first;
  }
  return file_.read(checked->second + offset, out);
}

struct TorchFile::State {
  explicit State(TorchArchive opened) : archive(std::move(opened)) {}
  Status add_tensors(const PickleValue& weights);

  TorchArchive archive;
  Pickle pickle;
  std::vector<TensorSpec> specs;
  std::vector<const PickledTensor*> stored_tensors;  // of specs[i]; points into pickle.tensors
  std::unordered_map<std::string, size_t> index;
  std::vector<std::string> non_tensor_keys;
};

namespace {

using Type = PickleValue::Type;

// Keys under which trainers store the weights; the first existing one is used.
constexpr auto kWeightKeys =
    std::to_array<std::string_view>({"state_dict", "model_state_dict", "model"});
constexpr size_t kKeysShown = 8;
constexpr size_t kMaxOtherKeys = 10'000;  // a pickle can repeat one with a few bytes
constexpr std::string_view kZipMagic = "PK\3\4";
constexpr std::string_view kLegacyMagic = "\x80\2\x8a\n";  // a pickle with one large integer

bool starts_with_bytes(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

const PickleValue* find_key(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  for (size_t i = 0; i < dict.items.size(); i += 2)
    if (pickle.values[dict.items[i]].text == key) return &pickle.values[dict.items[i + 1]];
  return nullptr;
}

bool contains_tensor(const Pickle& pickle, const PickleValue& dict) {
  for (size_t i = 1; i < dict.items.size(); i += 2)
    if (pickle.values[dict.items[i]].type == Type::kTensor) return true;
  return false;
}

std::string keys_of(const Pickle& pickle, const PickleValue& dict) {
  std::string text;
  for (size_t i = 0; i < std::min(dict.items.size(), 2 * kKeysShown); i += 2)
    text += (i > 0 ? ", " : "") + printable(pickle.values[dict.items[i]].text);
  return text + (dict.items.size() > 2 * kKeysShown ? ", …" : "");
}

Result<const PickleValue*> find_weights(const Pickle& pickle) {
  const PickleValue& root = pickle.values[pickle.root];
  if (root.type != Type::kDict)
    return Status(StatusCode::kCorrupt,
                  "has no dict of tensors; save model.state_dict() with torch.save");
  for (const std::string_view key : kWeightKeys) {
    const PickleValue* const inner = find_key(pickle, root, key);
    if (inner != nullptr && inner->type == Type::kDict && contains_tensor(pickle, *inner))
      return inner;
  }
  if (contains_tensor(pickle, root) || root.items.empty()) return &root;
  return Status(StatusCode::kCorrupt,
                "has no tensors at the top level or under state_dict, "
                "model_state_dict or model; its keys: " +
                    keys_of(pickle, root));
}

uint64_t element_bytes_of(const PickledStorage& storage) {
  return storage.dtype ? dtype_bytes(*storage.dtype) : 1;
}

// The strides of dimensions with extent 1 are irrelevant.
bool is_contiguous(const PickledTensor& tensor) {
  int64_t expected_stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected_stride) return false;
    expected_stride *= tensor.shape[i];
  }
  return true;
}

// Number of storage elements from the first to the last element; the tensor must not be empty.
int64_t span_of(const PickledTensor& tensor) {
  int64_t span = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    span += (tensor.shape[i] - 1) * tensor.strides[i];
  return span;
}

// Copies from storage order to C order.
void copy_strided(const PickledTensor& tensor, std::span<const std::byte> from,
                  std::span<std::byte> to) {
  const size_t bytes = dtype_bytes(tensor.dtype);
  std::vector<int64_t> coordinates(tensor.shape.size(), 0);
  int64_t at = 0;
  for (size_t out = 0; out < to.size(); out += bytes) {
    std::memcpy(to.data() + out, from.data() + static_cast<size_t>(at) * bytes, bytes);
    for (size_t i = coordinates.size(); i-- > 0;) {
      at += tensor.strides[i];
      if (++coordinates[i] < tensor.shape[i]) break;
      at -= coordinates[i] * tensor.strides[i];
      coordinates[i] = 0;
    }
  }
}

}  // namespace

TorchFile::TorchFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
TorchFile::~TorchFile() = default;

Result<std::unique_ptr<TorchFile>> TorchFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not block.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_fd(std::move(fd), path);
}

Result<std::unique_ptr<TorchFile>> TorchFile::open_fd(UniqueFd fd, const std::string& path) {
  std::array<std::byte, kLegacyMagic.size()> start{};
  STOKER_RETURN_IF_ERROR(default_file_system().read_at(fd.get(), 0, start, path).status());
  if (starts_with_bytes(start, kLegacyMagic)) {
    return Status(StatusCode::kCorrupt,
                  path +
                      ": has the format of PyTorch before 1.6; save it again, from Python: "
                      "torch.save(torch.load(FILE, weights_only=True), NEW_FILE)");
  }
  STOKER_ASSIGN_OR_RETURN(TorchArchive archive, TorchArchive::open(std::move(fd), path));
  auto state = std::make_unique<State>(std::move(archive));
  STOKER_ASSIGN_OR_RETURN(const auto bytes, state->archive.read_pickle());
  auto pickle = read_pickle(bytes);
  if (!pickle.ok()) return pickle.status().with_context(path);
  state->pickle = *std::move(pickle);
  for (const PickledStorage& storage : state->pickle.storages) {
    STOKER_RETURN_IF_ERROR(
        state->archive.check_storage(storage.key, storage.elements * element_bytes_of(storage)));
  }
  const auto weights = find_weights(state->pickle);
  if (!weights.ok()) return weights.status().with_context(path);
  STOKER_RETURN_IF_ERROR(state->add_tensors(**weights).with_context(path));
  return std::unique_ptr<TorchFile>(new TorchFile(std::move(state)));
}

Status TorchFile::State::add_tensors(const PickleValue& weights) {
  for (size_t i = 0; i < weights.items.size(); i += 2) {
    const PickleValue& key = pickle.values[weights.items[i]];
    const PickleValue& value = pickle.values[weights.items[i + 1]];
    if (value.type != Type::kTensor) {
      if (non_tensor_keys.size() < kMaxOtherKeys) non_tensor_keys.push_back(printable(key.text));
      continue;
    }
    if (key.type != Type::kText)
      return Status(StatusCode::kCorrupt, "a tensor whose name is not a string");
    if (const Status name = check_tensor_name(key.text); !name.ok())
      return Status(StatusCode::kCorrupt, name.message());
    if (!index.emplace(key.text, specs.size()).second)
      return Status(StatusCode::kCorrupt, "duplicate tensor " + printable(key.text));
    const PickledTensor& tensor = pickle.tensors[static_cast<size_t>(value.number)];
    specs.push_back({key.text, tensor.dtype, tensor.shape});
    stored_tensors.push_back(&tensor);
  }
  return {};
}

const std::vector<TensorSpec>& TorchFile::tensors() const { return state_->specs; }
const std::vector<std::string>& TorchFile::non_tensor_keys() const {
  return state_->non_tensor_keys;
}

const TensorSpec* TorchFile::find(const std::string& name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->specs[found->second];
}

Status TorchFile::read(const std::string& name, std::span<std::byte> out) const {
  const auto found = state_->index.find(name);
  const std::string& path = state_->archive.path();
  if (found == state_->index.end())
    return Status(StatusCode::kNotFound, path + ": has no tensor " + name);
  const TensorSpec& spec = state_->specs[found->second];
  if (out.size() != spec.bytes()) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": " + to_string(spec) + " has " + std::to_string(spec.bytes()) +
                      " bytes, requested were " + std::to_string(out.size()));
  }
  if (out.empty()) return {};
  const PickledTensor& tensor = *state_->stored_tensors[found->second];
  const std::string& key = state_->pickle.storages[tensor.storage].key;
  const size_t bytes = dtype_bytes(tensor.dtype);
  const uint64_t begin = static_cast<uint64_t>(tensor.offset) * bytes;
  if (is_contiguous(tensor)) return state_->archive.read(key, begin, out);
  std::vector<std::byte> storage_bytes(static_cast<size_t>(span_of(tensor)) * bytes);
  STOKER_RETURN_IF_ERROR(state_->archive.read(key, begin, storage_bytes));
  copy_strided(tensor, storage_bytes, out);
  return {};
}

// Bytes 4 to 7 of a zip file are never all 0. In a .safetensors file they are the upper half of the
// header length. (The start of the legacy format would exceed its limit.)
bool is_torch_file(std::span<const std::byte> start) {
  if (starts_with_bytes(start, kLegacyMagic)) return true;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  return starts_with_bytes(start, kZipMagic) && start.size() >= 8 &&
         !std::ranges::all_of(start.subspan(4, 4), is_zero);
}

namespace {

constexpr size_t kBraceOffset = 8;  // in a .safetensors file: after the header length

template <typename File>
Result<std::unique_ptr<TensorSource>> to_tensor_source(Result<std::unique_ptr<File>> file) {
  if (!file.ok()) return file.status();
  return std::unique_ptr<TensorSource>(*std::move(file));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_tensor_file_fd(UniqueFd fd, const std::string& path) {
  std::array<std::byte, kBraceOffset + 1> start{};
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(fd.get(), 0, start, path));
  if (is_torch_file(std::span(start).first(got)))
    return to_tensor_source(TorchFile::open_fd(std::move(fd), path));
  if (got == start.size() && start[kBraceOffset] == std::byte{'{'})
    return to_tensor_source(SafetensorsFile::open_fd(std::move(fd), path));
  return Status(StatusCode::kCorrupt,
                path + ": is neither a .safetensors file nor a torch.save file");
}

Result<std::unique_ptr<TensorSource>> open_tensor_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not block.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_tensor_file_fd(std::move(fd), path);
}

}  // namespace stoker::checkpoint
