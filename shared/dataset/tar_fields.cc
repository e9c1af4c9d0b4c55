#include "shared/dataset/tar_fields.h"

#include <algorithm>

namespace stoker::dataset {
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

// Says of a field of arrays what does not go with that.
Status check_npy(const DatasetRequest& request, const RecordFields& fields, size_t i,
                 const TarField& field) {
  const std::string name = "'" + fields.names()[i] + "' ";
  if (!std::ranges::all_of(field.extensions, is_npy))
    return request.config_error(fields.key_of(i), name + "mixes arrays with other members");
  if (field.is_json())
    return request.config_error(fields.key_of(i), name + "is an array, and no JSON");
  if (fields.key_of_name(i) == "text")
    return request.config_error("fields.text", name + "is an array, and no text");
  if (fields.key_of_name(i) == "image")
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
                                         const RecordFields& fields) {
  std::vector<TarField> parsed;
  for (size_t i = 0; i < fields.names().size(); ++i) {
    const std::string& name = fields.names()[i];
    TarField field = parse(name);
    const bool is_cut = name.ends_with(':');
    if (field.extensions.empty() || is_cut) {
      return request.config_error(fields.key_of(i), "'" + name +
                                                        "' names no member; write its extension, "
                                                        "such as jpg;png, or json:KEY");
    }
    if (fields.is_text() && field.is_json())
      return request.config_error("fields.text", "must be a member of its own, such as txt");
    field.is_label = fields.label() == i;
    field.is_npy = std::ranges::any_of(field.extensions, is_npy);
    if (field.is_npy) STOKER_RETURN_IF_ERROR(check_npy(request, fields, i, field));
    parsed.push_back(std::move(field));
  }
  return parsed;
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

}  // namespace stoker::dataset
