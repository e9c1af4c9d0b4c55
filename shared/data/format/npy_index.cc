#include "shared/data/format/npy_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "shared/archive/zip.h"
#include "shared/base/log.h"
#include "shared/data/file_kind.h"
#include "shared/data/files/decompressed_file.h"
#include "shared/data/format/npy_rows.h"
#include "shared/data/record/bad_records.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/sample_split.h"

namespace stoker::data::format {
namespace {

using archive::ZipMember;
using namespace std::string_view_literals;

// Default names of the arrays; the first one that exists is used.
constexpr auto kInputNames = std::to_array({"x"sv, "images"sv, "input"sv, "data"sv, "arr_0"sv});
constexpr auto kTargetNames =
    std::to_array({"y"sv, "labels"sv, "label"sv, "target"sv, "targets"sv, "arr_1"sv});
constexpr auto kLengthNames = std::to_array({"lengths"sv, "length"sv, "arr_0"sv});
constexpr size_t kMembersShown = 8;
constexpr uint64_t kNoTarget = UINT64_MAX;  // in the index, instead of a layout

// Location of the bytes of an array: a whole file or a part of one.
struct ArrayLocation {
  uint64_t file = 0;  // index in the table of the files to read
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class NpyScan {
 public:
  NpyScan(const DatasetRequest& request, const files::FileTable& files,
          const files::ScanProgress& progress, files::FileTable& made)
      : request_(request),
        config_(request.as<config::NumpyDataset>()),
        files_(files),
        reader_(files),
        progress_(progress),
        made_(made),
        bad_(request, config_.max_bad_record_rate) {}

  Result<NpyIndex> run(NpyIndex::Files parts) {
    for (size_t file = 0; file < files_.size(); ++file)
      index_.data.add(files_.path(file), files_.stamp(file));
    for (size_t file = 0; file < files_.size(); ++file) {
      progress_(file);
      const bool is_input = file < parts.inputs;
      const bool is_answer = !is_input && file < parts.inputs + parts.target_arrays;
      const Role role = is_input ? Role::kInput : is_answer ? Role::kAnswer : Role::kLengths;
      STOKER_RETURN_IF_ERROR(take_file(file, role, is_input && parts.target_arrays == 0)
                                 .with_context(request_.key(is_input    ? "path"
                                                            : is_answer ? "labels_path"
                                                                        : "lengths_path")));
    }
    for (size_t i = 0; i < index_.others.size(); ++i)
      if (index_.others[i].rows() != index_.input.rows())
        return Status(StatusCode::kMismatch,
                      "data." + request_.name + ": " + std::to_string(index_.input.rows()) +
                          " rows of input, but " + std::to_string(index_.others[i].rows()) +
                          " of " + config_.fields.others[i]);
    if (index_.has_target() && index_.target_array.rows() != index_.input.rows()) {
      return Status(StatusCode::kMismatch,
                    "data." + request_.name + ": " + std::to_string(index_.input.rows()) +
                        " rows of input, but " + std::to_string(index_.target_array.rows()) +
                        " of labels");
    }
    if (config_.sequence.max_length) STOKER_RETURN_IF_ERROR(take_lengths());
    STOKER_RETURN_IF_ERROR(index_.has_target() ? count_classes() : check_bad());
    if (is_by_group()) STOKER_RETURN_IF_ERROR(take_groups());
    return std::move(index_);
  }

 private:
  archive::ArchiveFile archive_file(size_t file) const {
    return {.path = files_.path(file),
            .size = files_.stamp(file).size,
            .read = [this, file](uint64_t offset, std::span<std::byte> bytes) {
              return reader_.read(file, offset, bytes);
            }};
  }
  enum class Role { kInput, kAnswer, kLengths };

  NpyLayout& layout_of(Role role) {
    return role == Role::kInput    ? index_.input
           : role == Role::kAnswer ? index_.target_array
                                   : lengths_;
  }

  // `has_answer`: there is no labels_path, so this file must also contain the labels.
  Status take_file(size_t file, Role role, bool has_answer) {
    STOKER_ASSIGN_OR_RETURN(const bool is_archive, archive::is_zip(archive_file(file)));
    if (!is_archive) {
      if (role == Role::kInput && !config_.fields.others.empty())
        return request_.config_error(
            "fields.others", "names arrays of an .npz, which " + files_.path(file) + " is not");
      if (has_answer)
        return request_.config_error(
            "labels_path",
            "is required; set it to the file of the labels that belong to " + files_.path(file));
      if (role == Role::kInput && is_by_group())
        return request_.config_error("fields.group",
                                     "names an array of an .npz, which " + files_.path(file) +
                                         " is not; save the arrays with numpy.savez");
      if (role == Role::kInput && !config_.fields.length.empty())
        return request_.config_error(
            "fields.length",
            "names an array of an .npz; set lengths_path for " + files_.path(file));
      const ArrayLocation whole{.file = file, .offset = 0, .bytes = files_.stamp(file).size};
      return add(whole, files_.path(file), layout_of(role));
    }
    STOKER_ASSIGN_OR_RETURN(const auto members, archive::read_zip_directory(archive_file(file)));
    if (role == Role::kLengths)
      return take_member(file, members, "length", "", kLengthNames, lengths_);
    const config::FieldNames& fields = config_.fields;
    if (role == Role::kInput) {
      if (!fields.length.empty())
        STOKER_RETURN_IF_ERROR(
            take_member(file, members, "length", fields.length, kLengthNames, lengths_));
      if (is_by_group())
        STOKER_RETURN_IF_ERROR(take_member(file, members, "group", fields.group, {}, groups_));
      const std::string given = fields.input.empty() ? "" : fields.input.front();
      STOKER_RETURN_IF_ERROR(take_member(file, members, "input", given, kInputNames, index_.input));
      index_.others.resize(fields.others.size());
      for (size_t i = 0; i < fields.others.size(); ++i)
        STOKER_RETURN_IF_ERROR(take_member(file, members, "others", fields.others[i], {},
                                           index_.others[i], '.' + std::to_string(i)));
      const bool has_none = fields.target.empty() && fields.labels.empty() && fields.label.empty();
      if (!has_answer || (has_none && !fields.others.empty())) return {};
      if (has_none && !has_member(members, kTargetNames)) return {};
    }
    if (!fields.target.empty())
      return take_member(file, members, "target", fields.target.front(), kTargetNames,
                         index_.target_array);
    if (!fields.labels.empty())
      return take_member(file, members, "labels", fields.labels, kTargetNames, index_.target_array);
    return take_member(file, members, "label", fields.label, kTargetNames, index_.target_array);
  }

  // `role`: the key in `fields`.
  Status take_member(size_t file, const std::vector<ZipMember>& members, const std::string& role,
                     const std::string& given, std::span<const std::string_view> usual,
                     NpyLayout& layout, const std::string& of_file = "") {
    STOKER_ASSIGN_OR_RETURN(const ZipMember* const member,
                            find_member(file, members, role, given, usual));
    const std::string path = files_.path(file) + ": " + member->name;
    STOKER_ASSIGN_OR_RETURN(const uint64_t offset,
                            archive::zip_data_offset(archive_file(file), *member));
    if (!member->is_deflated)
      return add({.file = file, .offset = offset, .bytes = member->bytes}, path, layout);
    const files::DecompressOptions options{.from = {.format = files::Packed::Format::kDeflate,
                                                    .file = file,
                                                    .offset = offset,
                                                    .bytes = member->packed_bytes},
                                           .bytes = member->bytes,
                                           .crc32 = member->crc32};
    const std::string name = role + of_file + (file == 0 ? "" : '-' + std::to_string(file));
    STOKER_RETURN_IF_ERROR(files::decompress_file(
        reader_, files_, options, request_.derived_file(name, "decompressed"), progress_, made_));
    const size_t last = made_.size() - 1;
    index_.data.add(made_.path(last), made_.stamp(last));
    return add({.file = index_.data.size() - 1, .offset = 0, .bytes = member->bytes}, path, layout);
  }

  static bool has_member(const std::vector<ZipMember>& members,
                         std::span<const std::string_view> names) {
    return std::ranges::any_of(members, [&](const ZipMember& member) {
      return std::ranges::any_of(names, [&](std::string_view name) {
        return member.name == name || member.name == std::string(name) + ".npy";
      });
    });
  }

  Result<const ZipMember*> find_member(size_t file, const std::vector<ZipMember>& members,
                                       const std::string& role, const std::string& given,
                                       std::span<const std::string_view> usual) const {
    std::vector<std::string_view> wanted(usual.begin(), usual.end());
    if (!given.empty()) wanted = {given};
    for (const std::string_view name : wanted) {
      const auto is_it = [&](const ZipMember& member) {
        return member.name == name || member.name == std::string(name) + ".npy";
      };
      const auto found = std::ranges::find_if(members, is_it);
      if (found != members.end()) return &*found;
    }
    std::string there;
    for (size_t i = 0; i < std::min(members.size(), kMembersShown); ++i)
      there += (i == 0 ? "" : ", ") + format_event(members[i].name.substr(0, 64), {});
    return request_.config_error(
        "fields." + role,
        given.empty()
            ? "must name one of the arrays of " + files_.path(file) + ": " + there
            : "there is no array '" + given + "' in " + files_.path(file) + ", only " + there);
  }

  Status add(const ArrayLocation& location, const std::string& path, NpyLayout& layout) {
    const files::FileReader reader(index_.data);
    std::array<std::byte, kNpyPrefix> start;
    const auto prefix = std::span(start).first(std::min<uint64_t>(start.size(), location.bytes));
    STOKER_RETURN_IF_ERROR(reader.read(location.file, location.offset, prefix));
    const auto bytes = npy_header_bytes(prefix);
    if (!bytes) {
      const Status kind = reject_other_kind(prefix, "an .npy file");
      return (kind.ok() ? bytes.status() : kind).with_context(path);
    }
    std::vector<std::byte> head(std::min(*bytes, location.bytes));
    STOKER_RETURN_IF_ERROR(reader.read(location.file, location.offset, head));
    const auto header = parse_npy_header(head, location.bytes);
    if (!header) return header.status().with_context(path);
    return layout.add(*header, location.file, location.offset).with_context(path);
  }

  Status for_each_number(const NpyLayout& layout, std::string_view what,
                         const OnNumber& take) const {
    const files::FileReader reader(index_.data);
    return for_each_npy_number(NpyRows(index_.data, reader, layout), progress_, what, take);
  }

  // Determines the number of valid time steps of each row. Without lengths, all steps are valid.
  Status take_lengths() {
    const auto max_length = static_cast<uint64_t>(*config_.sequence.max_length);
    const NpyLayout& input = index_.input;
    if (input.row.empty() || input.row.front() != max_length)
      return request_.config_error("sequence.max_length",
                                   "must be the number of time steps of each row, got " +
                                       std::to_string(max_length) + " for " + to_string(input));
    if (config_.fields.length.empty() && config_.lengths_path.empty()) {
      index_.lengths.assign(input.rows(), max_length);
      return {};
    }
    if (!lengths_.type.is_integer() || lengths_.row_elements() != 1)
      return request_.config_error(config_.lengths_path.empty() ? "fields.length" : "lengths_path",
                                   "must be one integer per row, got " + to_string(lengths_));
    if (lengths_.rows() != input.rows())
      return Status(StatusCode::kMismatch,
                    "data." + request_.name + ": " + std::to_string(input.rows()) +
                        " rows of input, but " + std::to_string(lengths_.rows()) + " of lengths");
    return for_each_number(
        lengths_, "lengths", [&](const NpyRows& rows, uint64_t row, int64_t length) -> Status {
          const bool is_valid = length >= 1 && static_cast<uint64_t>(length) <= max_length;
          index_.lengths.push_back(is_valid ? static_cast<uint64_t>(length) : 1);
          if (is_valid) return {};
          return note_bad(rows, row, "length",
                          std::to_string(length) + ", not between 1 and the " +
                              std::to_string(max_length) + " time steps of a row");
        });
  }

  bool is_by_group() const {
    return request_.config.splits_samples() && request_.config.split_by == config::SplitBy::kGroup;
  }
  Status take_groups() {
    if (!groups_.type.is_integer() || groups_.row_elements() != 1)
      return request_.config_error("fields.group",
                                   "must be one integer per row, got " + to_string(groups_));
    if (groups_.rows() != index_.input.rows())
      return Status(StatusCode::kMismatch,
                    "data." + request_.name + ": " + std::to_string(index_.input.rows()) +
                        " rows of input, but " + std::to_string(groups_.rows()) + " of groups");
    return for_each_number(groups_, "groups",
                           [&](const NpyRows&, uint64_t row, int64_t group) -> Status {
                             if (!bad_rows_.contains(row))
                               index_.groups.push_back(name_hash(std::to_string(group)));
                             return {};
                           });
  }

  // Determines the number of classes. Integers, one per row, are classes unless fields.target is
  // set. Rows of sequences can have several, and -100 is not a class.
  Status count_classes() {
    const NpyLayout& target_array = index_.target_array;
    const bool are_many = config_.sequence.max_length && target_array.row_elements() > 1;
    const bool is_label =
        target_array.type.is_integer() && (are_many || target_array.row_elements() == 1);
    const config::FieldNames& fields = config_.fields;
    if (!fields.label.empty() && (!is_label || are_many))
      return request_.config_error("fields.label",
                                   "must be one integer per row, got " + to_string(target_array));
    if (!fields.labels.empty() && !is_label)
      return request_.config_error(
          "fields.labels",
          "must be integers, and requires sequence.max_length; got " + to_string(target_array));
    if (!is_label || !fields.target.empty())
      return config_.class_names.empty()
                 ? check_bad()
                 : request_.config_error("class_names",
                                         "requires labels, got " + to_string(target_array));
    STOKER_RETURN_IF_ERROR(for_each_number(
        target_array, "labels", [&](const NpyRows& rows, uint64_t row, int64_t label) -> Status {
          if (are_many && label == record::kPaddedLabel) return {};
          if (label < 0 || label >= static_cast<int64_t>(record::kMaxClasses))
            return note_bad(rows, row, "label",
                            "not a class (0 to " + std::to_string(record::kMaxClasses - 1) +
                                "); save targets of a regression as floats");
          index_.classes = std::max(index_.classes, static_cast<uint64_t>(label) + 1);
          return {};
        }));
    STOKER_RETURN_IF_ERROR(check_bad());
    if (index_.classes == 0)
      return request_.config_error(config_.labels_path.empty() ? "fields.labels" : "labels_path",
                                   "must contain a class, got only -100");
    return check_given();
  }
  // Leaves the row out. An error if most of the rows so far are bad.
  Status note_bad(const NpyRows& rows, uint64_t row, const std::string& name,
                  const std::string& how) {
    constexpr uint64_t kMaxOfOtherArray = 10'000;
    if (!bad_rows_.insert(row).second) return {};
    const SampleSource where = rows.source(row);
    bad_.add({.path = where.file,
              .record = "row " + std::to_string(row),
              .offset = where.offset,
              .text = "data." + request_.name + ": " + where.file},
             Status(StatusCode::kCorrupt,
                    "the " + name + " at offset " + std::to_string(where.offset) + " is " + how));
    const bool are_most = bad_.count() >= kMaxOfOtherArray && 2 * bad_.count() > row;
    return are_most && bad_.are_too_many(row + 1) ? bad_.check(row + 1) : Status();
  }
  Status check_bad() {
    index_.bad_rows.assign(bad_rows_.begin(), bad_rows_.end());
    return bad_.check(index_.input.rows());
  }
  Status check_given() {
    const std::vector<std::string>& names = config_.class_names;
    if (!names.empty() && names.size() < index_.classes)
      return request_.config_error("class_names", "has " + std::to_string(names.size()) +
                                                      " names, but a label is " +
                                                      std::to_string(index_.classes - 1));
    index_.classes = std::max<uint64_t>(index_.classes, names.size());
    if (!config_.num_classes) return {};
    const auto given = static_cast<uint64_t>(*config_.num_classes);
    if (given < index_.classes)
      return request_.config_error(
          "num_classes",
          "is " + std::to_string(given) + ", but a label is " + std::to_string(index_.classes - 1));
    index_.classes = given;
    return {};
  }

  const DatasetRequest& request_;
  const config::NumpyDataset& config_;
  const files::FileTable& files_;
  const files::FileReader reader_;
  const files::ScanProgress& progress_;
  files::FileTable& made_;
  NpyLayout lengths_;
  NpyLayout groups_;
  record::BadRecords bad_;
  std::set<uint64_t> bad_rows_;
  NpyIndex index_;
};

}  // namespace

Result<NpyIndex> NpyIndex::make(const DatasetRequest& request, const files::FileTable& files,
                                Files parts, const files::ScanProgress& progress,
                                files::FileTable& made) {
  return NpyScan(request, files, progress, made).run(parts);
}

std::vector<uint64_t> NpyIndex::to_numbers() const {
  std::vector<uint64_t> numbers{classes};
  input.append_to(numbers);
  if (has_target())
    target_array.append_to(numbers);
  else
    numbers.push_back(kNoTarget);
  for (const NpyLayout& other : others) other.append_to(numbers);
  numbers.insert(numbers.end(), lengths.begin(), lengths.end());
  return numbers;
}

std::vector<std::string> NpyIndex::to_names() const {
  std::vector<std::string> names;
  for (const uint64_t row : bad_rows) names.push_back(std::to_string(row));
  return names;
}

Result<NpyIndex> NpyIndex::of(const files::Index& index, size_t num_others) {
  const Status no_index(StatusCode::kCorrupt, "its index does not describe arrays");
  NpyIndex arrays;
  for (const files::FileTable* const files : {&index.files, &index.metadata.made})
    for (size_t file = 0; file < files->size(); ++file)
      arrays.data.add(files->path(file), files->stamp(file));
  std::span<const uint64_t> numbers(index.metadata.numbers);
  if (numbers.empty()) return no_index;
  arrays.classes = numbers.front();
  numbers = numbers.subspan(1);
  bool fits = arrays.input.take_from(numbers, arrays.data);
  const auto take = [&](NpyLayout& layout) {
    fits = fits && layout.take_from(numbers, arrays.data) && layout.rows() == arrays.input.rows();
  };
  if (!numbers.empty() && numbers.front() == kNoTarget)
    numbers = numbers.subspan(1);
  else
    take(arrays.target_array);
  arrays.others.resize(num_others);
  for (NpyLayout& other : arrays.others) take(other);
  fits = fits && (numbers.empty() || numbers.size() == arrays.input.rows()) &&
         arrays.classes <= record::kMaxClasses;
  if (!fits) return no_index;
  const bool has_steps = !arrays.input.row.empty();
  const auto is_length = [&](uint64_t length) {
    return has_steps && length >= 1 && length <= arrays.input.row.front();
  };
  if (!std::ranges::all_of(numbers, is_length)) return no_index;
  arrays.lengths.assign(numbers.begin(), numbers.end());
  for (const std::string& name : index.metadata.names) {
    uint64_t row = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), row);
    const bool is_next = arrays.bad_rows.empty() || arrays.bad_rows.back() < row;
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() || !is_next ||
        row >= arrays.input.rows())
      return no_index;
    arrays.bad_rows.push_back(row);
  }
  if (arrays.bad_rows.size() == arrays.input.rows()) return no_index;
  const NpyLayout& target = arrays.target_array;
  const bool can_have_classes =
      target.type.is_integer() && (target.row_elements() == 1 || !arrays.lengths.empty());
  if (arrays.classes > 0 && !can_have_classes)
    return Status(StatusCode::kCorrupt,
                  "its index has classes, but its labels are " + to_string(target));
  return arrays;
}

}  // namespace stoker::data::format
