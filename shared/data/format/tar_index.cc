#include "shared/data/format/tar_index.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "shared/base/utf8.h"
#include "shared/data/file_kind.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/npy_value.h"

namespace stoker::data::format {
namespace {

TarField parse(std::string_view name) {
  TarField field;
  const size_t colon = std::min(name.find(':'), name.size());
  if (colon < name.size()) field.json_key = name.substr(colon + 1);
  std::string_view rest = name.substr(0, colon);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    if (end > 0) field.extensions.push_back(lower_case(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return field;
}

bool is_npy(const std::string& extension) {
  return extension == "npy" || extension.ends_with(".npy");
}

// Reports a configuration error if a field of arrays is combined with something that arrays do not
// support.
Status check_npy(const DatasetRequest& request, const record::SampleSpec& spec, size_t i,
                 const TarField& field) {
  const std::string name = "'" + spec.names[i] + "' ";
  if (!std::ranges::all_of(field.extensions, is_npy))
    return request.config_error(spec.key_of(i), name + "mixes arrays with other members");
  if (field.is_json())
    return request.config_error(spec.key_of(i), name + "is an array, and no JSON");
  if (spec.role_of(i) == record::FieldRole::kText)
    return request.config_error("fields.text", name + "is an array, and no text");
  if (spec.role_of(i) == record::FieldRole::kPriority)
    return request.config_error("fields.priority",
                                name + "is an array; set it to a text or json:KEY");
  if (spec.role_of(i) == record::FieldRole::kImage)
    return request.config_error("fields.image",
                                name + "is an array; name it in fields.input, with an input_shape");
  return {};
}

}  // namespace

std::optional<size_t> TarField::extension_rank(std::string_view extension) const {
  const auto found = std::ranges::find(extensions, extension);
  if (found == extensions.end()) return std::nullopt;
  return static_cast<size_t>(found - extensions.begin());
}

Result<std::vector<TarField>> tar_fields(const DatasetRequest& request,
                                         const record::SampleSpec& spec) {
  std::vector<TarField> parsed;
  for (size_t i = 0; i < spec.names.size(); ++i) {
    const std::string& name = spec.names[i];
    TarField field = parse(name);
    const bool is_cut = name.ends_with(':');
    if (field.extensions.empty() || is_cut) {
      return request.config_error(spec.key_of(i), "'" + name +
                                                      "' names no member; write its extension, "
                                                      "such as jpg;png, or json:KEY");
    }
    if (spec.is_text() && field.is_json())
      return request.config_error("fields.text", "must be a separate member, such as txt");
    field.is_label = spec.label_value() == i || spec.group_value() == i;
    field.is_priority = spec.role_of(i) == record::FieldRole::kPriority;
    field.is_caption = spec.has_captions() && i == 1;
    field.can_be_empty = spec.can_be_empty(i);
    field.is_npy = std::ranges::any_of(field.extensions, is_npy);
    if (field.is_npy) STOKER_RETURN_IF_ERROR(check_npy(request, spec, i, field));
    parsed.push_back(std::move(field));
  }
  return parsed;
}

std::unique_ptr<JsonValues> TarField::make_json(uint64_t values_per_step) const {
  return std::make_unique<JsonValues>(std::vector{json_key}, values_per_step,
                                      is_caption ? std::optional<size_t>(0) : std::nullopt,
                                      std::nullopt, std::vector<bool>{can_be_empty});
}

std::optional<TarName> split_tar_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin || dot + 1 == name.size()) return std::nullopt;
  return TarName{.key = name.substr(0, dot), .extension = name.substr(dot + 1)};
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

void TarMembers::clear() {
  std::ranges::fill(found_, std::nullopt);
  extensions_.clear();
}

Status TarMembers::add(const TarMember& member, std::string_view extension) {
  std::string lower = lower_case(extension);
  if (std::ranges::find(extensions_, lower) != extensions_.end())
    return Status(StatusCode::kCorrupt, "has two members " + quote_for_message(lower));
  if (extensions_.size() == kMaxTarMembers)
    return Status(StatusCode::kCorrupt,
                  "has more than " + std::to_string(kMaxTarMembers) + " members");
  for (size_t field = 0; field < fields_.size(); ++field) {
    const auto rank = fields_[field].extension_rank(lower);
    if (rank && (!found_[field] || *rank < found_[field]->rank))
      found_[field] = Member{
          .rank = *rank, .content = member.content, .size = member.size, .is_link = member.is_link};
  }
  extensions_.push_back(std::move(lower));
  return {};
}

Status SequenceMember::read(const TarField& field, uint64_t values_per_step,
                            std::span<const std::byte> member, record::FieldValue& value) {
  value = record::FieldBytes(member);
  Status read;
  if (field.is_npy) read = read_npy_steps(member, values_per_step, value);
  if (field.is_json()) {
    json_ = field.make_json(values_per_step);
    read = json_->read(record::to_string_view(member), std::span(&value, 1));
  }
  return read.ok() ? read : read.with_context(field.extensions.front());
}

namespace {

constexpr uint64_t kMaxParsed = uint64_t{64} << 10;  // bytes of a label or a JSON member
constexpr size_t kShownKey = 256;
constexpr size_t kShownMembers = 16;

class TarIndexer {
 public:
  TarIndexer(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
             files::ByteSource& shard, record::RecordIndexBuilder& index, TarIgnored& ignored)
      : spec_(spec),
        tar_fields_(tar_fields),
        shard_(shard),
        index_(index),
        ignored_(ignored),
        members_(tar_fields),
        contents_(tar_fields.size()),
        values_(tar_fields.size()),
        sequence_(tar_fields.size()) {
    for (const TarField& field : tar_fields)
      parsers_.push_back(field.is_json() ? field.make_json() : nullptr);
  }

  Status run() {
    STOKER_ASSIGN_OR_RETURN(const auto first, shard_.peek(0, kTarBlock));
    STOKER_RETURN_IF_ERROR(index_.in_shard(reject_other_kind(first, "a tar archive")));
    TarReader walk(shard_);
    for (TarMember member;;) {
      const auto more = walk.next(member);
      if (!more) return index_.in_shard(is_reported(more.status(), member));
      if (!*more) break;
      if (member.is_file || (member.is_link && is_wanted(member)))
        STOKER_RETURN_IF_ERROR(take(member));
    }
    STOKER_RETURN_IF_ERROR(end_sample());
    if (!walk.has_end_block()) ++ignored_.without_end;
    return {};
  }

 private:
  // If the first header is invalid, the file is probably not a tar file; a corrupt one is less
  // likely.
  static Status is_reported(const Status& status, const TarMember& last) {
    if (last.content != 0 || status.code() != StatusCode::kCorrupt) return status;
    return Status(status.code(), status.message() + "; if it is not a tar file, narrow the glob");
  }

  Status wrong(const Status& status) const {
    return index_.at(first_header_, "sample " + quote_for_message(key_, kShownKey), status);
  }
  Status wrong(const std::string& what) const { return wrong(Status(StatusCode::kCorrupt, what)); }

  // A link of which no field is read does no harm.
  bool is_wanted(const TarMember& member) const {
    const auto name = split_tar_name(member.name);
    return name && std::ranges::any_of(tar_fields_, [&](const TarField& field) {
             return field.extension_rank(lower_case(name->extension)).has_value();
           });
  }

  Status take(const TarMember& member) {
    const auto name = split_tar_name(member.name);
    if (!name) return ++ignored_.members, Status();
    if (members_.extensions().empty() || name->key != key_) {
      STOKER_RETURN_IF_ERROR(end_sample());
      key_ = name->key;
      first_header_ = member.header;
      if (key_.size() > kMaxTarKey)
        return wrong("its key has " + std::to_string(key_.size()) + " bytes");
    }
    STOKER_RETURN_IF_ERROR(wrong(members_.add(member, name->extension)));
    for (size_t i = 0; i < tar_fields_.size(); ++i) {
      const auto& found = members_.of(i);
      if (found && found->content == member.content) STOKER_RETURN_IF_ERROR(take_field(i, member));
    }
    return {};
  }

  Status take_field(size_t i, const TarMember& member) {
    const TarField& field = tar_fields_[i];
    const bool has_length = is_of_sequence(field);
    const bool is_parsed = has_length || field.is_label || field.is_json();
    const uint64_t max_elements = has_length        ? kMaxTarMember
                                  : is_parsed       ? kMaxParsed
                                  : spec_.is_text() ? TarLocation::kMaxCount - 1
                                                    : kMaxTarMember;
    if (member.size > max_elements || member.content / kTarBlock >= TarLocation::kMaxCount) {
      return wrong("its member of " + std::to_string(member.size) + " bytes is past the limit of " +
                   std::to_string(max_elements));
    }
    contents_[i].clear();
    if (!is_parsed || member.is_link) return {};
    STOKER_ASSIGN_OR_RETURN(const auto bytes, shard_.peek(member.content, member.size));
    contents_[i] = record::to_string_view(bytes);
    return {};
  }

  Status end_sample() {
    if (members_.extensions().empty()) return {};
    std::vector<uint64_t>& row = row_;
    row.clear();
    Status valid;
    for (size_t i = 0; valid.ok() && i < tar_fields_.size(); ++i) {
      valid = value_of(i);
      if (!tar_fields_[i].is_label) row.push_back(location_of(i).to_number());
    }
    Status added = valid.ok() ? index_.add(first_header_, what(), values_, row)
                              : index_.add_bad(first_header_, what(), valid);
    members_.clear();
    return added;
  }

  TarLocation location_of(size_t i) const {
    const auto& found = members_.of(i);
    return found ? TarLocation{.content = found->content, .size = found->size} : TarLocation();
  }

  // Whether the index needs the length of the value.
  bool is_of_sequence(const TarField& field) const {
    return spec_.is_sequence() && !field.is_label;
  }

  // Sets values_[i]. For values that are not parsed, the index only needs to know that they exist.
  Status value_of(size_t i) {
    const auto& found = members_.of(i);
    values_[i] = record::FieldValue();
    if (!found) return {};
    const std::string& extension = tar_fields_[i].extensions[found->rank];
    if (found->is_link) return link_in_tar(extension);
    values_[i] = content_of(i);
    if (is_of_sequence(tar_fields_[i])) {
      const Status read =
          sequence_[i].read(tar_fields_[i], spec_.values_per_step(i), content_of(i), values_[i]);
      return read;
    }
    if (tar_fields_[i].is_npy) return npy_value_of(i).with_context(extension);
    if (!tar_fields_[i].is_json()) return {};
    return parsers_[i]->read(contents_[i], std::span(&values_[i], 1)).with_context(extension);
  }

  record::FieldBytes content_of(size_t i) const { return std::as_bytes(std::span(contents_[i])); }

  // Labels are decoded. An input is a uint8 image or numbers; the first array of a shard decides
  // for all.
  Status npy_value_of(size_t i) {
    if (tar_fields_[i].is_label) return read_npy_label(content_of(i), values_[i]);
    if (i == 0 && !has_form_) {
      const TarLocation location = location_of(i);
      STOKER_ASSIGN_OR_RETURN(
          const auto head, shard_.peek(location.content, std::min(location.size, kMaxNpyHeader)));
      STOKER_ASSIGN_OR_RETURN(has_bytes_, npy_is_bytes(head, location.size));
      has_form_ = true;
    }
    if (!has_bytes_ || i > 0) values_[i] = record::FieldFloats(&kSomeNumber, 1);
    return {};
  }

  std::string what() const {
    std::string text = "sample " + quote_for_message(key_, kShownKey) + " (";
    const auto extensions = members_.extensions();
    for (size_t i = 0; i < std::min(extensions.size(), kShownMembers); ++i)
      text += (i == 0 ? "" : " ") + quote_for_message(extensions[i]);
    return text + (extensions.size() > kShownMembers ? " …)" : ")");
  }

  static constexpr float kSomeNumber = 0;

  const record::SampleSpec& spec_;
  const std::span<const TarField> tar_fields_;
  files::ByteSource& shard_;
  record::RecordIndexBuilder& index_;
  TarIgnored& ignored_;
  std::vector<std::unique_ptr<JsonValues>> parsers_;  // null if the member itself is the value
  bool has_form_ = false;                             // the first array of the input was checked
  bool has_bytes_ = false;                            // the arrays are uint8 images
  // State of the current sample.
  std::string key_;
  uint64_t first_header_ = 0;
  TarMembers members_;
  std::vector<std::string> contents_;  // of the members of the fields, if they are parsed
  std::vector<record::FieldValue> values_;
  std::vector<SequenceMember> sequence_;
  std::vector<uint64_t> row_;
};

}  // namespace

Status index_tar_shard(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
                       files::ByteSource& shard, record::RecordIndexBuilder& index,
                       TarIgnored& ignored) {
  return TarIndexer(spec, tar_fields, shard, index, ignored).run();
}

uint64_t tar_row_width(const record::SampleSpec& spec) {
  return spec.num_values() - (spec.label_value() ? 1 : 0);
}

}  // namespace stoker::data::format
