// The JSON Schema of configurations, for editors.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "shared/config/epochs.h"
#include "shared/config/reference.h"
#include "shared/config/reference_entries.h"

namespace stoker::config {
namespace {

namespace json = boost::json;

constexpr size_t kSchemaColumns = 100;

json::object schema_of(const Field& field, bool is_expanded);

json::object properties_of(const std::vector<Field>& fields, json::array& required,
                           bool is_expanded) {
  json::object properties;
  for (const Field& field : fields) {
    properties[field.name] = schema_of(field, is_expanded);
    if (field.is_required && field.replaced_by.empty()) required.emplace_back(field.name);
  }
  return properties;
}

// No type, because a section with all its keys commented out is null.
json::object keys_schema(const std::vector<Field>& fields, bool is_expanded) {
  json::array required;
  json::object schema{{"properties", properties_of(fields, required, is_expanded)},
                      {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

json::object mapping_schema(const std::vector<Field>& fields, bool is_nullable, bool is_expanded) {
  json::object schema;
  if (is_nullable)
    schema["type"] = json::array{"object", "null"};
  else
    schema["type"] = "object";
  for (const auto& [key, value] : keys_schema(fields, is_expanded)) schema[key] = value;
  return schema;
}

// ---- values --------------------------------------------------------------------------------------

json::value number_value(double number) {
  // 2^53: integers up to this one are exact as doubles.
  constexpr double kExact = 9007199254740992.0;
  if (number == std::floor(number) && std::abs(number) <= kExact)
    return static_cast<int64_t>(number);
  return number;
}

template <typename T>
json::object value_schema(const Field& field) {
  if constexpr (std::is_same_v<T, bool>) return {{"type", "boolean"}};
  // YAML parses 10 as a number, which stoker accepts for a text.
  if constexpr (std::is_same_v<T, std::string>) return {{"type", json::array{"string", "number"}}};
  if constexpr (std::is_same_v<T, DeviceConfig>)
    return {{"type", "string"}, {"pattern", "^(auto|cpu|cuda(:[0-9]{1,2})?)$"}};
  json::object schema{{"type", std::is_integral_v<T> ? "integer" : "number"}};
  if (field.min != std::numeric_limits<double>::lowest())
    schema[field.exclusive_min ? "exclusiveMinimum" : "minimum"] = number_value(field.min);
  if (field.max != std::numeric_limits<double>::max()) schema["maximum"] = number_value(field.max);
  return schema;
}

json::object words_schema(std::span<const std::string_view> words) {
  json::array all;
  for (const std::string_view word : words) all.emplace_back(word);
  return {{"enum", all}};
}

json::object any_of(std::initializer_list<json::object> schemas) {
  json::array any;
  for (const json::object& each : schemas) any.push_back(each);
  return {{"anyOf", any}};
}

const json::object kNull{{"type", "null"}};

// {epochs: 1.5}, with the steps in the configuration of a run.
json::object epochs_schema(const Field& field) {
  json::object epochs{{"type", "number"}, {"minimum", 0}, {"maximum", number_value(kMaxEpochs)}};
  json::object steps{{"type", "integer"}};
  if (is_list_of_steps(field)) {
    epochs = {{"type", "array"}, {"items", epochs}};
    steps = {{"type", "array"}, {"items", steps}};
  }
  return {{"type", "object"},
          {"properties", json::object{{"epochs", epochs}, {"steps", steps}}},
          {"required", json::array{"epochs"}},
          {"additionalProperties", false}};
}

template <typename T>
json::object schema_of_target(const Field& field, std::optional<T>*) {
  json::object schema{{"anyOf", json::array{value_schema<T>(field), kNull}}};
  if (!field.null_word.empty())
    schema["anyOf"].as_array().push_back(json::object{{"const", field.null_word}});
  return schema;
}
template <typename T>
json::object schema_of_target(const Field& field, std::vector<T>*) {
  json::object list{{"type", "array"}, {"items", value_schema<T>(field)}};
  return field.accepts_scalar ? any_of({value_schema<T>(field), list}) : list;
}
template <typename T>
json::object schema_of_target(const Field& field, T*) {
  return value_schema<T>(field);
}
json::object schema_of_target(const Field&, const EnumField& target) {
  const json::object words = words_schema(target.words);
  return target.accepts_null ? any_of({words, kNull}) : words;
}
json::object schema_of_target(const Field& field, const NumbersOrKeyword& target) {
  return any_of(
      {{{"type", "array"}, {"items", value_schema<double>(field)}}, {{"const", target.keyword}}});
}
json::object schema_of_target(const Field&, const UntypedMapField&) { return {{"type", "object"}}; }
json::object schema_of_target(const Field& field, const SharesField&) {
  return {{"type", "object"}, {"additionalProperties", value_schema<double>(field)}};
}

json::object schema_of_target(const Field&, const MappingField& target) {
  const bool was_set = target.is_set(target.target);
  if (!was_set) target.reset(target.target, true);
  json::object schema = mapping_schema(target.fields(target.target), true, true);
  if (!was_set) target.reset(target.target, false);
  return schema;
}
json::object schema_of_target(const Field&, const ListField& target) {
  const size_t size = target.size(target.target);
  target.resize(target.target, size + 1);
  json::object schema{{"type", "array"},
                      {"items", mapping_schema(target.fields(target.target, size), false, true)}};
  target.resize(target.target, size);
  return schema;
}

// "relu", or "linear: {out_features: 10}".
json::object choices_schema(const TaggedListField& target) {
  json::array choices;
  for (size_t i = 0; i < target.names.size(); ++i) {
    target.clear(target.target);
    target.add(target.target, i);
    const std::vector<Field> fields = target.fields(target.target, 0);
    const bool is_value = fields.size() == 1 && fields[0].name.empty();
    const json::object argument =
        is_value ? schema_of(fields[0], false) : mapping_schema(fields, true, false);
    choices.push_back(json::object{{"type", "object"},
                                   {"properties", json::object{{target.names[i], argument}}},
                                   {"required", json::array{target.names[i]}},
                                   {"additionalProperties", false}});
  }
  target.clear(target.target);
  choices.push_back(words_schema(target.names));
  return {{"anyOf", choices}};
}
json::object schema_of_target(const Field&, const TaggedListField& target) {
  return {{"type", "array"}, {"items", choices_schema(target)}};
}
json::object schema_of_target(const Field&, const TaggedMapField& target) {
  return {{"type", "object"}, {"additionalProperties", choices_schema(target.values)}};
}

// `is_expanded`: describe the items of a tagged list. False inside such a list, because layers
// contain layers.
json::object schema_of(const Field& field, bool is_expanded) {
  json::object schema;
  if (!is_expanded && std::holds_alternative<TaggedListField>(field.target))
    schema = {{"type", "array"}};
  else
    schema = std::visit([&](const auto& target) { return schema_of_target(field, target); },
                        field.target);
  if (field.accepts_epochs) schema = any_of({schema, epochs_schema(field)});
  if (field.accepts_null) schema = any_of({schema, kNull});
  schema["description"] = sentences(std::string(field.help), std::string(field.details));
  return schema;
}

// ---- sections ------------------------------------------------------------------------------------

// Schemas that several variants of a section share, each defined once under "definitions".
class Definitions {
 public:
  // Replaces large properties that occur more than once in `cases` by references.
  void share(const std::string& section, std::vector<json::object>& cases) {
    std::map<std::string, int> counts;
    for (json::object& each : cases)
      for (auto& [key, schema] : each["properties"].as_object())
        ++counts[std::string(key) + json::serialize(schema)];
    std::map<std::string, std::string> names;
    for (json::object& each : cases) {
      for (auto& [key, schema] : each["properties"].as_object()) {
        const std::string text = std::string(key) + json::serialize(schema);
        if (counts[text] == 1 || text.size() < kSchemaColumns) continue;
        const auto [name, is_new] = names.emplace(text, "");
        if (is_new) name->second = add(section + '.' + std::string(key), schema);
        schema = json::object{{"$ref", "#/definitions/" + name->second}};
      }
    }
  }
  const json::object& all() const { return all_; }

 private:
  std::string add(const std::string& name, const json::value& schema) {
    std::string free = name;
    for (int i = 2; all_.contains(free); ++i) free = name + '-' + std::to_string(i);
    all_[free] = schema;
    return free;
  }

  json::object all_;
};

// Names of variants with the same keys.
struct Case {
  std::vector<std::string> names;
  json::object schema;
  bool is_key = false;       // mixture, concat
  bool is_selected = false;  // selected by default
};

std::vector<Case> cases_of(const std::string& key) {
  Config config;
  config.data["train"] = {};
  const Variants variants = find_section(config, key).variants;
  std::vector<Case> cases;
  for (size_t i = 0; i < variants.names.size(); ++i) {
    find_section(config, key).variants.select(i);
    const Section section = find_section(config, key);
    json::object schema = keys_schema(section.fields, true);
    const bool is_key = i >= variants.first_key;
    auto same = std::ranges::find_if(
        cases, [&](const Case& each) { return !each.is_key && !is_key && each.schema == schema; });
    if (same == cases.end())
      same =
          cases.insert(cases.end(), {.names = {}, .schema = std::move(schema), .is_key = is_key});
    same->names.emplace_back(variants.names[i]);
    same->is_selected = same->is_selected || (i == variants.selected && !variants.is_required);
  }
  return cases;
}

json::object section_schema(const std::string& key, Definitions& definitions) {
  Config config;
  config.data["train"] = {};
  const Section home = find_section(config, key);
  if (home.variants.discriminator.empty()) {
    json::object schema = mapping_schema(home.fields, true, true);
    schema["description"] = home.help;
    return schema;
  }
  const std::string name(home.variants.discriminator);
  std::vector<Case> cases = cases_of(key);
  std::vector<json::object> schemas;
  for (Case& each : cases) schemas.push_back(std::move(each.schema));
  definitions.share(key.starts_with("data.") ? "data" : key, schemas);
  json::array choices;
  for (size_t i = 0; i < cases.size(); ++i) {
    json::array names;
    for (const std::string& each : cases[i].names) names.emplace_back(each);
    json::object condition{{"required", json::array{name}}};
    if (cases[i].is_key) {
      condition["required"] = names;
    } else {
      const json::object is_one{{"enum", names}};
      schemas[i]["properties"].as_object()[name] = is_one;
      condition["properties"] = json::object{{name, is_one}};
      if (cases[i].is_selected) condition.erase("required");
    }
    choices.push_back(json::object{{"if", condition}, {"then", schemas[i]}});
  }
  json::array words;
  for (const std::string& each : selectable_names(home.variants)) words.emplace_back(each);
  const json::object discriminator{{"enum", words},
                                   {"description", sentences(std::string(home.variants.help),
                                                             std::string(home.variants.details))}};
  json::object schema{{"type", json::array{"object", "null"}},
                      {"description", home.help},
                      {"properties", json::object{{name, discriminator}}},
                      {"allOf", choices}};
  if (home.variants.is_required) {
    json::array one{json::object{{"required", json::array{name}}}};
    for (const Case& each : cases)
      if (each.is_key) one.push_back(json::object{{"required", json::array{each.names[0]}}});
    schema["oneOf"] = one;
  }
  return schema;
}

// Indents by two spaces per level; a value that fits on one line is not split.
void pretty_print(const json::value& value, const std::string& indent, size_t used,
                  std::string& out) {
  const std::string flat = json::serialize(value);
  const auto* const object = value.if_object();
  const auto* const array = value.if_array();
  const bool is_nested =
      (object != nullptr && !object->empty()) || (array != nullptr && !array->empty());
  if (!is_nested || used + flat.size() < kSchemaColumns) {
    out += flat;
    return;
  }
  const std::string inner = indent + "  ";
  out += object != nullptr ? "{\n" : "[\n";
  size_t i = 0;
  const auto print_item = [&](const std::string& start, const json::value& item, size_t count) {
    out += start;
    pretty_print(item, inner, start.size(), out);
    out += ++i < count ? ",\n" : "\n";
  };
  if (object != nullptr) {
    for (const auto& [key, each] : *object)
      print_item(inner + json::serialize(json::value(key)) + ": ", each, object->size());
  } else {
    for (const json::value& each : *array) print_item(inner, each, array->size());
  }
  out += indent + (object != nullptr ? "}" : "]");
}

}  // namespace

std::string json_schema() {
  Definitions definitions;
  json::object properties;
  json::array required{"data"};
  Config config;
  config.data["train"] = {};
  for (const Section& section : all_sections(config)) {
    json::object schema = section_schema(section.key, definitions);
    if (section.variants.is_required && !section.key.starts_with("data."))
      required.emplace_back(section.key);
    if (section.key == "data.train") {
      schema["description"] = "A dataset";
      properties["data"] = json::object{{"type", "object"},
                                        {"description", "Datasets by name; train is required"},
                                        {"required", json::array{"train"}},
                                        {"additionalProperties", schema}};
    } else {
      properties[section.key] = schema;
    }
  }
  const json::object schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                            {"title", "stoker configuration"},
                            {"type", "object"},
                            {"required", required},
                            {"properties", properties},
                            {"additionalProperties", false},
                            {"definitions", definitions.all()}};
  std::string out;
  pretty_print(schema, "", 0, out);
  return out + '\n';
}

}  // namespace stoker::config
