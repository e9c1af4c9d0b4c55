#include "shared/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>

#include "shared/base/regular_file.h"

namespace stoker::checkpoint {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

static_assert(std::endian::native == std::endian::little, "the format is little endian");

// Handles parser events. Accepts only the structure that the format defines: deeper nesting,
// unknown keys and duplicate keys stop the parser immediately. (boost::json::parse would silently
// keep the last of two equal keys.)
class HeaderHandler {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the parser asks for them by these names
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();
  // NOLINTEND(readability-identifier-naming)

  TensorHeader header;
  std::string error_text;  // set by reject(); empty: the parser's own error

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    if (section_ == Section::kStart) return enter(Section::kTop);
    if (section_ != Section::kTop) return reject(ec, "unexpected object");
    if (key_ == kMetadataKey) {
      if (std::exchange(metadata_seen_, true)) return reject(ec, "duplicate __metadata__");
      return enter(Section::kMetadata);
    }
    if (const Status status = check_tensor_name(key_); !status.ok())
      return reject(ec, status.message());
    if (header.tensors.size() == kMaxTensors)
      return reject(ec, "more than " + std::to_string(kMaxTensors) +
                            " tensors; save the model in several files");
    if (!names_.insert(key_).second) return reject(ec, "duplicate tensor " + key_);
    header.tensors.emplace_back().spec.name = key_;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return enter(Section::kTensor);
  }
  bool on_object_end(size_t, error_code& ec) {
    if (section_ == Section::kTop) return enter(Section::kEnd);
    if (section_ == Section::kTensor && !(has_dtype_ && has_shape_ && has_offsets_))
      return reject(ec, "tensor " + name() + " needs dtype, shape and data_offsets");
    return enter(Section::kTop);
  }
  bool on_array_begin(error_code& ec) {
    if (section_ == Section::kTensor && key_ == "shape") return enter(Section::kShape);
    if (section_ == Section::kTensor && key_ == "data_offsets") return enter(Section::kOffsets);
    return reject(ec, "unexpected array");
  }
  bool on_array_end(size_t count, error_code& ec) {
    if (section_ == Section::kOffsets && count != 2)
      return reject(ec, "tensor " + name() + ": data_offsets needs two numbers");
    return enter(Section::kTensor);
  }

  bool on_key_part(string_view part, size_t, error_code&) { return append(part); }
  bool on_key(string_view part, size_t, error_code& ec) {
    append(part);
    key_ = std::exchange(text_, {});
    if (section_ != Section::kTensor) return true;
    bool* const seen = key_ == "dtype"          ? &has_dtype_
                       : key_ == "shape"        ? &has_shape_
                       : key_ == "data_offsets" ? &has_offsets_
                                                : nullptr;
    if (seen == nullptr) return reject(ec, "tensor " + name() + ": unknown key");
    if (std::exchange(*seen, true)) return reject(ec, "tensor " + name() + ": duplicate " + key_);
    return true;
  }

  bool on_string_part(string_view part, size_t, error_code&) { return append(part); }
  bool on_string(string_view part, size_t, error_code& ec) {
    append(part);
    const std::string text = std::exchange(text_, {});
    if (section_ == Section::kMetadata) {
      if (!header.metadata.emplace(key_, text).second)
        return reject(ec, "duplicate key in __metadata__");
      if (header.metadata.size() <= kMaxMetadataEntries) return true;
      return reject(ec, "more than " + std::to_string(kMaxMetadataEntries) +
                            " entries of __metadata__; save the file without them");
    }
    if (section_ != Section::kTensor || key_ != "dtype") return reject(ec, "unexpected string");
    const auto dtype = parse_dtype(text);
    if (!dtype) return reject(ec, "tensor " + name() + ": unsupported dtype");
    header.tensors.back().spec.dtype = *dtype;
    return true;
  }

  // A number on the border of two parts of the header; on_int64() then gets its last characters.
  bool on_number_part(string_view part, error_code&) {
    has_minus_ = has_minus_ || part.starts_with('-');
    return true;
  }
  bool on_int64(int64_t value, string_view text, error_code& ec) {
    // This parser reads "-0" as zero, others reject it.
    if (value < 0 || has_minus_ || text.starts_with('-')) return reject(ec, "negative number");
    return add_number(static_cast<uint64_t>(value), ec);
  }
  bool on_uint64(uint64_t value, string_view, error_code& ec) { return add_number(value, ec); }
  bool on_double(double, string_view, error_code& ec) {
    return reject(ec, "number is not a 64-bit integer");
  }
  bool on_bool(bool, error_code& ec) { return reject(ec, "unexpected boolean"); }
  bool on_null(error_code& ec) { return reject(ec, "unexpected null"); }
  bool on_comment_part(string_view, error_code& ec) { return reject(ec, "unexpected comment"); }
  bool on_comment(string_view, error_code& ec) { return reject(ec, "unexpected comment"); }

 private:
  enum class Section { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool enter(Section next) {
    section_ = next;
    offsets_read_ = 0;
    return true;
  }
  bool append(string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool reject(error_code& ec, std::string why) {
    error_text = std::move(why);
    ec = json::error::syntax;
    return false;
  }
  const std::string& name() const { return header.tensors.back().spec.name; }
  bool add_number(uint64_t value, error_code& ec) {
    if (section_ == Section::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return reject(ec, "tensor " + name() + ": a dimension exceeds 63 bits");
      std::vector<int64_t>& shape = header.tensors.back().spec.shape;
      if (shape.size() == kMaxDimensions)
        return reject(ec, "tensor " + name() + ": more than " + std::to_string(kMaxDimensions) +
                              " dimensions");
      shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (section_ != Section::kOffsets) return reject(ec, "unexpected number");
    TensorExtent& tensor = header.tensors.back();
    (offsets_read_++ == 0 ? tensor.begin : tensor.end) = value;
    return true;
  }

  Section section_ = Section::kStart;
  std::string text_;  // incomplete key or string
  std::string key_;
  std::unordered_set<std::string> names_;
  size_t offsets_read_ = 0;
  bool metadata_seen_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_minus_ = false;
};

Status corrupt_header(std::string what) {
  return Status(StatusCode::kCorrupt, "header: " + std::move(what));
}

Status check_extents(std::vector<TensorExtent>& tensors, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t expected = 0;
  for (const auto& [spec, begin, end] : tensors) {
    const std::string span = "[" + std::to_string(begin) + ", " + std::to_string(end) + "]";
    if (begin != expected || end < begin) {
      return corrupt_header("tensor " + spec.name + ": data_offsets " + span +
                            " leave a gap or overlap; expected " + std::to_string(expected));
    }
    const auto bytes = checked_bytes(spec);
    if (!bytes) return corrupt_header("tensor " + spec.name + ": its shape overflows 63 bits");
    if (*bytes != end - begin) {
      return corrupt_header("tensor " + spec.name + ": dtype and shape need " +
                            std::to_string(*bytes) + " bytes, data_offsets " + span + " have " +
                            std::to_string(end - begin));
    }
    expected = end;
  }
  if (expected == data_bytes) return {};
  return corrupt_header("the tensors end at " + std::to_string(expected) + ", the data at " +
                        std::to_string(data_bytes));
}

std::string json_string(std::string_view text) {
  return json::serialize(json::string_view(text.data(), text.size()));
}

}  // namespace

// Multiplies in the order of the shape, like the safetensors crate: [0, huge, huge] is 0, [huge,
// huge, 0] is rejected. Signed, because TensorSpec::elements() is signed.
std::optional<uint64_t> checked_bytes(const TensorSpec& spec) {
  int64_t bytes = 1;
  for (const int64_t extent : spec.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  if (__builtin_mul_overflow(bytes, dtype_bytes(spec.dtype), &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

namespace {

// Parses the header in parts, so that it is never in memory as a whole.
class HeaderParser {
 public:
  Status add(std::string_view part, bool is_last) {
    if (num_bytes_ == 0 && !part.starts_with('{')) return corrupt_header("does not start with '{'");
    error_code error;
    const size_t used = parser_.write_some(!is_last, part.data(), part.size(), error);
    const std::string location = " at byte " + std::to_string(num_bytes_ + used);
    num_bytes_ += part.size();
    if (error) {
      const std::string& error_text = parser_.handler().error_text;
      return corrupt_header((error_text.empty() ? error.message() : error_text) + location);
    }
    if (used == part.size()) return {};
    return corrupt_header("trailing bytes after the JSON object" + location);
  }

  // After the last part.
  Result<TensorHeader> finish(uint64_t data_bytes) {
    TensorHeader header = std::move(parser_.handler().header);
    STOKER_RETURN_IF_ERROR(check_extents(header.tensors, data_bytes));
    return header;
  }

 private:
  json::basic_parser<HeaderHandler> parser_{json::parse_options{}};
  uint64_t num_bytes_ = 0;
};

}  // namespace

Result<TensorHeader> parse_tensor_header(std::string_view text, uint64_t data_bytes) {
  HeaderParser parser;
  STOKER_RETURN_IF_ERROR(parser.add(text, true));
  return parser.finish(data_bytes);
}

std::string format_tensor_header(const TensorHeader& header) {
  std::string text(sizeof(uint64_t), '\0');
  text += '{';
  const auto separate = [&] {
    if (text.back() != '{') text += ',';
  };
  if (!header.metadata.empty()) {
    text += json_string(kMetadataKey) + ":{";
    for (const auto& [key, value] : header.metadata) {
      separate();
      text += json_string(key) + ":" + json_string(value);
    }
    text += '}';
  }
  for (const auto& [spec, begin, end] : header.tensors) {
    separate();
    text += json_string(spec.name) + ":{\"dtype\":\"" + std::string(to_string(spec.dtype)) +
            "\",\"shape\":[";
    for (size_t i = 0; i < spec.shape.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(spec.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size() - sizeof(uint64_t);
  std::memcpy(text.data(), &length, sizeof length);
  return text;
}

Status check_tensor_name(std::string_view name) {
  if (name == kMetadataKey)
    return Status(StatusCode::kInvalidArgument, "a tensor cannot have the name __metadata__");
  if (name.size() > kMaxNameBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "a tensor's name has " + std::to_string(name.size()) + " bytes; the limit is " +
                      std::to_string(kMaxNameBytes));
  }
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const auto next = static_cast<unsigned char>(i + 1 < name.size() ? name[i + 1] : 0xff);
    const bool c1 = byte == 0xc2 && next < 0xa0;  // U+0080 … U+009F in UTF-8
    if (byte < 0x20 || byte == 0x7f || c1)
      return Status(StatusCode::kInvalidArgument, "a tensor's name contains a control character");
  }
  return {};
}

namespace {

Status check_views(const TensorViews& tensors, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const auto& [spec, bytes] : tensors) {
    STOKER_RETURN_IF_ERROR(check_tensor_name(spec.name).with_context(path));
    if (!names.insert(spec.name).second)
      return Status(StatusCode::kInvalidArgument,
                    path + ": tensor " + spec.name + " is listed twice");
    const auto needed = checked_bytes(spec);
    if (!needed)
      return Status(StatusCode::kInvalidArgument,
                    path + ": " + to_string(spec) + " is not a valid shape");
    if (bytes.size() != *needed) {
      return Status(StatusCode::kInvalidArgument, path + ": " + to_string(spec) + " needs " +
                                                      std::to_string(*needed) + " bytes, got " +
                                                      std::to_string(bytes.size()));
    }
  }
  return {};
}

std::vector<const TensorView*> in_file_order(const TensorViews& tensors) {
  std::vector<const TensorView*> order;
  for (const auto& view : tensors) order.push_back(&view);
  std::stable_sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return dtype_bytes(a->spec.dtype) > dtype_bytes(b->spec.dtype);
  });
  return order;
}

}  // namespace

Result<SafetensorsContent> make_safetensors_layout(
    const std::string& name, const TensorViews& tensors,
    const std::map<std::string, std::string>& metadata) {
  STOKER_RETURN_IF_ERROR(check_views(tensors, name));
  const auto order = in_file_order(tensors);
  TensorHeader header{{}, metadata};
  uint64_t offset = 0;
  for (const TensorView* view : order) {
    header.tensors.push_back({view->spec, offset, offset + view->bytes.size()});
    offset += view->bytes.size();
  }
  const std::string head = format_tensor_header(header);
  if (head.size() - sizeof(uint64_t) > kMaxHeaderBytes) {
    return Status(StatusCode::kInvalidArgument,
                  name + ": the header of " + std::to_string(tensors.size()) + " tensors has " +
                      std::to_string(head.size() - sizeof(uint64_t)) + " bytes; the limit is " +
                      std::to_string(kMaxHeaderBytes));
  }
  // Content that the reader would reject (such as text that is not UTF-8) is not written either.
  const auto read_back =
      parse_tensor_header(std::string_view(head).substr(sizeof(uint64_t)), offset);
  if (!read_back.ok())
    return Status(StatusCode::kInvalidArgument, name + ": " + read_back.status().message());
  SafetensorsContent layout;
  const auto bytes = std::as_bytes(std::span(head));
  layout.head.assign(bytes.begin(), bytes.end());
  layout.content.name = name;
  layout.content.pieces.emplace_back(layout.head);
  for (const TensorView* view : order) layout.content.pieces.push_back(view->bytes);
  return layout;
}

// ---- Reading

struct SafetensorsFile::State {
  UniqueFd fd;  // or `open`
  Opener open;
  std::string path;
  uint64_t data_begin = 0;
  std::vector<TensorSpec> specs;
  std::vector<uint64_t> offsets;  // of specs[i], relative to data_begin
  std::unordered_map<std::string, size_t> index;
  std::map<std::string, std::string> metadata;
};

namespace {

Result<uint64_t> size_of(int fd, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(fd, path, StatusCode::kCorrupt));
  return static_cast<uint64_t>(info.st_size);
}

constexpr size_t kHeaderPart = size_t{64} << 10;  // bytes that are read and parsed at a time

Result<uint64_t> read_header_length(int fd, uint64_t file_bytes, const std::string& path) {
  uint64_t length = 0;
  if (file_bytes < sizeof length) {
    return Status(StatusCode::kCorrupt,
                  path + ": " + std::to_string(file_bytes) + " bytes are too few for a header");
  }
  STOKER_RETURN_IF_ERROR(read_exactly(fd, 0, std::as_writable_bytes(std::span(&length, 1)), path));
  if (length <= std::min(kMaxHeaderBytes, file_bytes - sizeof length)) return length;
  return Status(StatusCode::kCorrupt, path + ": offset 0: a header of " + std::to_string(length) +
                                          " bytes, in a file of " + std::to_string(file_bytes) +
                                          " and with a limit of " +
                                          std::to_string(kMaxHeaderBytes));
}

Result<TensorHeader> read_header(int fd, uint64_t length, uint64_t file_bytes,
                                 const std::string& path) {
  HeaderParser parser;
  std::string part;
  for (uint64_t at = 0; at < length || at == 0; at += part.size()) {
    part.resize(std::min<uint64_t>(kHeaderPart, length - at));
    STOKER_RETURN_IF_ERROR(
        read_exactly(fd, sizeof length + at, std::as_writable_bytes(std::span(part)), path));
    const Status parsed = parser.add(part, at + part.size() == length);
    if (!parsed.ok()) return parsed.with_context(path);
  }
  auto header = parser.finish(file_bytes - sizeof length - length);
  return header.ok() ? std::move(header) : header.status().with_context(path);
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsFile::~SafetensorsFile() = default;

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not block.
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  return open_fd(std::move(fd), path);
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open_fd(
    UniqueFd fd, const std::string& path_in_messages) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t file_bytes, size_of(fd.get(), path_in_messages));
  STOKER_ASSIGN_OR_RETURN(const uint64_t length,
                          read_header_length(fd.get(), file_bytes, path_in_messages));
  STOKER_ASSIGN_OR_RETURN(TensorHeader header,
                          read_header(fd.get(), length, file_bytes, path_in_messages));
  auto state = std::make_unique<State>();
  state->data_begin = sizeof(uint64_t) + length;
  state->fd = std::move(fd);
  state->path = path_in_messages;
  state->metadata = std::move(header.metadata);
  state->specs.reserve(header.tensors.size());
  state->offsets.reserve(header.tensors.size());
  for (auto& [spec, begin, end] : header.tensors) {
    state->index.emplace(spec.name, state->specs.size());
    state->specs.push_back(std::move(spec));
    state->offsets.push_back(begin);
  }
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(state)));
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open_for_each_read(
    Opener open, const std::string& path_in_messages) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, open());
  STOKER_ASSIGN_OR_RETURN(auto file, open_fd(std::move(fd), path_in_messages));
  file->state_->fd.reset();
  file->state_->open = std::move(open);
  return file;
}

const std::vector<TensorSpec>& SafetensorsFile::tensors() const { return state_->specs; }

const std::string& SafetensorsFile::path() const { return state_->path; }

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}

const TensorSpec* SafetensorsFile::find(const std::string& name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->specs[found->second];
}

Status SafetensorsFile::read(const std::string& name, std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec != nullptr && out.size() != spec->bytes()) {
    return Status(StatusCode::kInvalidArgument,
                  state_->path + ": " + to_string(*spec) + " has " + std::to_string(spec->bytes()) +
                      " bytes, requested were " + std::to_string(out.size()));
  }
  return read_part(name, 0, out);
}

Status SafetensorsFile::read_part(const std::string& name, uint64_t offset,
                                  std::span<std::byte> out) const {
  const auto found = state_->index.find(name);
  if (found == state_->index.end())
    return Status(StatusCode::kNotFound, state_->path + ": has no tensor " + name);
  const TensorSpec& spec = state_->specs[found->second];
  if (offset > spec.bytes() || out.size() > spec.bytes() - offset)
    return Status(StatusCode::kInvalidArgument,
                  state_->path + ": the requested bytes exceed " + to_string(spec));
  const uint64_t begin = state_->data_begin + state_->offsets[found->second] + offset;
  if (!state_->open) return read_exactly(state_->fd.get(), begin, out, state_->path);
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, state_->open());
  return read_exactly(fd.get(), begin, out, state_->path);
}

}  // namespace stoker::checkpoint
