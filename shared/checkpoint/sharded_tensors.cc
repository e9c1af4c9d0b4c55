#include "shared/checkpoint/sharded_tensors.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::checkpoint {
namespace {

namespace json = boost::json;

Status corrupt(const SafetensorsFile& file, const std::string& what) {
  return Status(StatusCode::kCorrupt, file.path() + ": " + what);
}

// [first element, [shape]] by tensor.
TensorRanges parse_fields(const json::object& root) {
  TensorRanges ranges;
  for (const auto& [name, value] : root) {
    const json::array& fields = value.as_array();
    TensorRange& range = ranges[std::string(name)];
    range.first_element = fields.at(0).to_number<uint64_t>();
    for (const json::value& extent : fields.at(1).as_array())
      range.shape.push_back(extent.to_number<int64_t>());
  }
  return ranges;
}

Result<TensorRanges> read_ranges(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kRangesKey);
  if (found == file.metadata().end()) return TensorRanges();
  boost::system::error_code error;
  const json::value root = parse_json(found->second, error);
  if (error) return corrupt(file, "ranges: not JSON: " + error.message());
  try {
    return parse_fields(root.as_object());
  } catch (const std::exception& wrong) {
    return corrupt(file,
                   std::string("ranges: not {name: [first element, shape]}: ") + wrong.what());
  }
}

}  // namespace

std::string format_ranges(const TensorRanges& ranges) {
  json::object root;
  for (const auto& [name, range] : ranges)
    root[name] = {range.first_element, json::array(range.shape.begin(), range.shape.end())};
  return json::serialize(root);
}

Result<std::unique_ptr<ShardedTensors>> ShardedTensors::create(
    std::vector<std::unique_ptr<SafetensorsFile>> files) {
  std::unique_ptr<ShardedTensors> made(new ShardedTensors);
  made->files_ = std::move(files);
  for (const auto& file : made->files_) STOKER_RETURN_IF_ERROR(made->add(*file));
  STOKER_RETURN_IF_ERROR(made->check_complete());
  return made;
}

Status ShardedTensors::add(const SafetensorsFile& file) {
  STOKER_ASSIGN_OR_RETURN(const TensorRanges ranges, read_ranges(file));
  for (const auto& [name, range] : ranges)
    if (file.find(name) == nullptr) return corrupt(file, "ranges: there is no tensor " + name);
  for (const TensorSpec& spec : file.tensors()) {
    const auto range = ranges.find(spec.name);
    TensorSpec complete = spec;
    Piece piece{.file = &file, .begin = 0, .bytes = spec.bytes()};
    if (range != ranges.end()) {
      complete.shape = range->second.shape;
      const auto bytes = checked_bytes(complete);
      const uint64_t element_bytes = dtype_bytes(spec.dtype);
      const uint64_t first = range->second.first_element;
      if (spec.shape.size() != 1 || !bytes || first > *bytes / element_bytes ||
          piece.bytes > *bytes - first * element_bytes)
        return corrupt(file, "tensor " + spec.name + ": " + std::to_string(spec.elements()) +
                                 " elements from " + std::to_string(first) +
                                 " on are no range of a tensor of its shape");
      piece.begin = first * element_bytes;
    }
    STOKER_RETURN_IF_ERROR(add(file, complete, piece));
  }
  return {};
}

Status ShardedTensors::add(const SafetensorsFile& file, const TensorSpec& complete,
                           const Piece& piece) {
  const auto [entry, is_new] = index_.try_emplace(complete.name, specs_.size());
  if (is_new) {
    specs_.push_back(complete);
    pieces_.emplace_back();
  }
  std::vector<Piece>& pieces = pieces_[entry->second];
  if (specs_[entry->second] != complete)
    return corrupt(file, "tensor " + complete.name + ": has " + to_string(complete) +
                             ", another file " + to_string(specs_[entry->second]));
  const bool is_complete = piece.bytes == complete.bytes();
  if (!is_new && is_complete && pieces.front().bytes == piece.bytes) return {};
  const uint64_t end = pieces.empty() ? 0 : pieces.back().begin + pieces.back().bytes;
  if (piece.begin != end)
    return corrupt(file, "tensor " + complete.name + ": its range begins at byte " +
                             std::to_string(piece.begin) + ", those before end at byte " +
                             std::to_string(end));
  pieces.push_back(piece);
  return {};
}

Status ShardedTensors::check_complete() const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const Piece& last = pieces_[i].back();
    if (last.begin + last.bytes == specs_[i].bytes()) continue;
    return corrupt(*last.file, "tensor " + specs_[i].name + ": its last range ends at byte " +
                                   std::to_string(last.begin + last.bytes) + " of " +
                                   std::to_string(specs_[i].bytes()));
  }
  return {};
}

const TensorSpec* ShardedTensors::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &specs_[found->second];
}

Status ShardedTensors::read(const std::string& name, std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec != nullptr && out.size() != spec->bytes())
    return Status(StatusCode::kInvalidArgument,
                  to_string(*spec) + " has " + std::to_string(spec->bytes()) +
                      " bytes, requested were " + std::to_string(out.size()));
  return read_part(name, 0, out);
}

Status ShardedTensors::read_part(const std::string& name, uint64_t offset,
                                 std::span<std::byte> out) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return Status(StatusCode::kNotFound, "there is no tensor " + name);
  const TensorSpec& spec = specs_[found->second];
  if (offset > spec.bytes() || out.size() > spec.bytes() - offset)
    return Status(StatusCode::kInvalidArgument, "the requested bytes exceed " + to_string(spec));
  for (const Piece& piece : pieces_[found->second]) {
    const uint64_t begin = std::max(offset, piece.begin);
    const uint64_t end = std::min(offset + out.size(), piece.begin + piece.bytes);
    if (begin >= end) continue;
    STOKER_RETURN_IF_ERROR(
        piece.file->read_part(name, begin - piece.begin, out.subspan(begin - offset, end - begin)));
  }
  return {};
}

}  // namespace stoker::checkpoint
