#include "shared/checkpoint/torch_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shared/base/file.h"
#include "shared/checkpoint/pickle_globals.h"
#include "shared/checkpoint/pickle_reader.h"
#include "shared/checkpoint/tensor_header.h"
#include "shared/checkpoint/torch_archive.h"

namespace stoker::checkpoint {

struct TorchFile::State {
  explicit State(TorchArchive opened) : archive(std::move(opened)) {}
  Status take_tensors(const PickleValue& weights);

  TorchArchive archive;
  Pickle pickle;
  std::vector<TensorSpec> specs;
  std::vector<const PickledTensor*> stored_tensors;  // of specs[i], in pickle.tensors
  std::unordered_map<std::string, size_t> index;
  std::vector<std::string> others;
};

namespace {

using Type = PickleValue::Type;

// Where trainers put the weights in what they save; the first that is there.
constexpr auto kNests =
    std::to_array<std::string_view>({"state_dict", "model_state_dict", "model"});
constexpr size_t kKeysShown = 8;
constexpr std::string_view kZipStart = "PK\3\4";
constexpr std::string_view kOldStart = "\x80\2\x8a\n";  // a pickle of one large number

bool begins_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

const PickleValue* find_key(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  for (size_t i = 0; i < dict.items.size(); i += 2)
    if (pickle.values[dict.items[i]].text == key) return &pickle.values[dict.items[i + 1]];
  return nullptr;
}

bool holds_tensor(const Pickle& pickle, const PickleValue& dict) {
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
                  "holds no dict of tensors; save model.state_dict() with torch.save");
  for (const std::string_view nest : kNests) {
    const PickleValue* const inner = find_key(pickle, root, nest);
    if (inner != nullptr && inner->type == Type::kDict && holds_tensor(pickle, *inner))
      return inner;
  }
  if (holds_tensor(pickle, root) || root.items.empty()) return &root;
  return Status(StatusCode::kCorrupt,
                "holds no tensor, neither by itself nor under state_dict, "
                "model_state_dict or model; its keys: " +
                    keys_of(pickle, root));
}

uint64_t element_bytes_of(const PickledStorage& storage) {
  return storage.dtype ? dtype_bytes(*storage.dtype) : 1;
}

// Extents of 1 say nothing about the order.
bool is_contiguous(const PickledTensor& tensor) {
  int64_t due = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != due) return false;
    due *= tensor.shape[i];
  }
  return true;
}

// How many elements there are from the first to the last; the tensor has at least one.
int64_t span_of(const PickledTensor& tensor) {
  int64_t span = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    span += (tensor.shape[i] - 1) * tensor.strides[i];
  return span;
}

// From the order of the storage to C order.
void gather(const PickledTensor& tensor, std::span<const std::byte> from, std::span<std::byte> to) {
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
  // O_NONBLOCK: a FIFO in its place must not hang us.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_fd(std::move(fd), path);
}

Result<std::unique_ptr<TorchFile>> TorchFile::open_fd(UniqueFd fd, const std::string& path) {
  std::array<std::byte, kOldStart.size()> start{};
  STOKER_RETURN_IF_ERROR(default_file_system().read_at(fd.get(), 0, start, path).status());
  if (begins_with(start, kOldStart)) {
    return Status(StatusCode::kCorrupt,
                  path +
                      ": is in PyTorch's format of before 1.6; save it again, from Python: "
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
  STOKER_RETURN_IF_ERROR(state->take_tensors(**weights).with_context(path));
  return std::unique_ptr<TorchFile>(new TorchFile(std::move(state)));
}

Status TorchFile::State::take_tensors(const PickleValue& weights) {
  for (size_t i = 0; i < weights.items.size(); i += 2) {
    const PickleValue& key = pickle.values[weights.items[i]];
    const PickleValue& value = pickle.values[weights.items[i + 1]];
    if (value.type != Type::kTensor) {
      others.push_back(printable(key.text));
      continue;
    }
    if (key.type != Type::kText)
      return Status(StatusCode::kCorrupt, "a tensor whose name is no text");
    if (const Status name = check_tensor_name(key.text); !name.ok())
      return Status(StatusCode::kCorrupt, name.message());
    if (!index.emplace(key.text, specs.size()).second)
      return Status(StatusCode::kCorrupt, "tensor " + printable(key.text) + " is there twice");
    const PickledTensor& tensor = pickle.tensors[static_cast<size_t>(value.number)];
    specs.push_back({key.text, tensor.dtype, tensor.shape});
    stored_tensors.push_back(&tensor);
  }
  return {};
}

const std::vector<TensorSpec>& TorchFile::tensors() const { return state_->specs; }
const std::vector<std::string>& TorchFile::others() const { return state_->others; }

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
                      " bytes, asked for " + std::to_string(out.size()));
  }
  if (out.empty()) return {};
  const PickledTensor& tensor = *state_->stored_tensors[found->second];
  const std::string& key = state_->pickle.storages[tensor.storage].key;
  const size_t bytes = dtype_bytes(tensor.dtype);
  const uint64_t begin = static_cast<uint64_t>(tensor.offset) * bytes;
  if (is_contiguous(tensor)) return state_->archive.read(key, begin, out);
  std::vector<std::byte> stored(static_cast<size_t>(span_of(tensor)) * bytes);
  STOKER_RETURN_IF_ERROR(state_->archive.read(key, begin, stored));
  gather(tensor, stored, out);
  return {};
}

// The four bytes behind a zip's first four are never all 0; of a .safetensors file they are the upper
// half of the header's length. (That of the old format's start is beyond its limit.)
bool is_torch_file(std::span<const std::byte> start) {
  if (begins_with(start, kOldStart)) return true;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  return begins_with(start, kZipStart) && start.size() >= 8 &&
         !std::ranges::all_of(start.subspan(4, 4), is_zero);
}

}  // namespace stoker::checkpoint
