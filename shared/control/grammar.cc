#include "shared/control/grammar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/utf8.h"

namespace stoker::control {
namespace {

namespace json = boost::json;
using WordSpan = std::span<const std::string_view>;

// Any JSON parser reads integers up to this one exactly.
constexpr uint64_t kMaxNumber = uint64_t{1} << 53;

// ---- Method table

enum class Form {
  kRequired,  // a positional word, and a field of params
  kOptional,  // the same, but optional; a flag is given by its name
  kField,     // an optional field of params only
};

template <typename C>
struct Argument {
  std::string_view name;
  std::variant<uint64_t C::*, bool C::*, std::string C::*> member;
  Form form = Form::kRequired;
  uint64_t min = 0;  // of a number; of a string its size in bytes
  uint64_t max = 0;  // of a number; of a string its size in bytes
  bool accepts_scalar =
      false;  // of a string: params can have a number, true, false or null instead
};

template <typename C>
struct Row {
  std::string_view name;
  bool changes_state = false;
  std::string_view text;
  std::string_view waits_for = {};
  std::span<const Argument<C>> arguments = {};
  std::string_view usage = {};    // shown after incorrect arguments
  std::string_view example = {};  // of params
};

constexpr Argument<Hello> kHelloArguments[] = {
    {"protocol_version", &Hello::protocol_version, Form::kOptional, 1, kMaxNumber},
};

constexpr Argument<Pause> kPauseArguments[] = {
    {"release", &Pause::release, Form::kOptional},
};

constexpr Argument<Reload> kReloadArguments[] = {
    {"dry_run", &Reload::dry_run, Form::kField},
};

constexpr Argument<ShowBatch> kShowBatchArguments[] = {
    {"step", &ShowBatch::step, Form::kRequired, 1, kMaxNumber},
    {"first_sample", &ShowBatch::first_sample, Form::kOptional, 0, kMaxNumber},
};

constexpr Argument<SaveCheckpoint> kCheckpointArguments[] = {
    {"wait", &SaveCheckpoint::wait, Form::kField},
};

constexpr Argument<Subscribe> kSubscribeArguments[] = {
    {"events", &Subscribe::events, Form::kOptional, 0, Subscribe::kMaxPatternBytes},
    {"status_seconds", &Subscribe::status_seconds, Form::kOptional, 0,
     Subscribe::kMaxStatusSeconds},
};

constexpr Argument<Evaluate> kEvaluateArguments[] = {
    {"step", &Evaluate::step, Form::kRequired, 0, kMaxNumber},
};

constexpr Argument<ReadLogs> kLogsArguments[] = {
    {"lines", &ReadLogs::lines, Form::kOptional, 0, ReadLogs::kMaxLines},
    {"evaluator", &ReadLogs::evaluator, Form::kOptional},
    {"rank", &ReadLogs::rank, Form::kField, 0, 1 << 16},
};

constexpr std::array<Argument<Profile>, 3> kProfileArguments = {{
    {"steps", &Profile::steps, Form::kRequired, 1, Profile::kMaxSteps},
    {"kernels", &Profile::kernels, Form::kOptional},
    {"wait", &Profile::wait, Form::kField},
}};

constexpr std::array<Argument<OpenInspection>, 8> kOpenArguments = {{
    {"glob", &OpenInspection::glob, Form::kRequired, 1, OpenInspection::kMaxGlobBytes},
    {"every", &OpenInspection::every, Form::kOptional, 1, OpenInspection::kMaxEvery},
    {"steps", &OpenInspection::steps, Form::kField, 0, kMaxNumber},
    {"parameters", &OpenInspection::parameters, Form::kField},
    {"gradients", &OpenInspection::gradients, Form::kField},
    {"activations", &OpenInspection::activations, Form::kField},
    {"inputs", &OpenInspection::inputs, Form::kField},
    {"histograms", &OpenInspection::histograms, Form::kField},
}};

constexpr std::array<Argument<ReadInspection>, 2> kReadArguments = {{
    {"inspection", &ReadInspection::inspection, Form::kRequired, 1, kMaxNumber},
    {"after", &ReadInspection::after, Form::kOptional, 0, kMaxNumber},
}};

constexpr std::array<Argument<CloseInspection>, 1> kCloseArguments = {{
    {"inspection", &CloseInspection::inspection, Form::kRequired, 1, kMaxNumber},
}};

constexpr Argument<GetSettings> kGetArguments[] = {
    {"key", &GetSettings::key, Form::kOptional, 0, SetSetting::kMaxKeyBytes},
};

constexpr Argument<SetSetting> kSetArguments[] = {
    {"key", &SetSetting::key, Form::kRequired, 1, SetSetting::kMaxKeyBytes},
    {.name = "value",
     .member = &SetSetting::value,
     .min = 1,
     .max = SetSetting::kMaxValueBytes,
     .accepts_scalar = true},
    {"dry_run", &SetSetting::dry_run, Form::kField},
};

constexpr Argument<UnsetSetting> kUnsetArguments[] = {
    {"key", &UnsetSetting::key, Form::kRequired, 1, SetSetting::kMaxKeyBytes},
    {"dry_run", &UnsetSetting::dry_run, Form::kField},
};

constexpr bool kReads = false, kChanges = true;

constexpr std::tuple kRows{
    Row<Hello>{"hello", kReads, "protocol version, build and methods", "", kHelloArguments,
               "hello takes the protocol version of the client, for example: hello 2",
               R"({"protocol_version":2})"},
    Row<Help>{"help", kReads, "this list"},
    Row<GetStatus>{"status", kReads, "show the training status"},
    Row<GetThreads>{"threads", kReads, "list the threads and what each of them does"},
    Row<Pause>{"pause", kChanges, "pause after the current step", "", kPauseArguments,
               "pause takes at most the word release, for example: pause release",
               R"({"release":true})"},
    Row<Resume>{"resume", kChanges, "resume training"},
    Row<SaveCheckpoint>{"checkpoint", kChanges, "save a checkpoint now", "it is durable",
                        kCheckpointArguments, "checkpoint takes no arguments", R"({"wait":false})"},
    Row<Stop>{"stop", kChanges, "finish the step, save a checkpoint, exit"},
    Row<GetSettings>{"get", kReads, "show the settings that can change, or those of a key", "",
                     kGetArguments, "get takes at most a key, for example: get train.max_steps",
                     R"({"key":"train.max_steps"})"},
    Row<SetSetting>{"set", kChanges, "change a setting while the run trains", "", kSetArguments,
                    "set takes a key and a value, for example: set optimizer.lr 1e-4",
                    R"({"key":"optimizer.lr","value":1e-4})"},
    Row<UnsetSetting>{"unset", kChanges, "restore the configuration's value of a setting", "",
                      kUnsetArguments, "unset takes a key, for example: unset optimizer.lr",
                      R"({"key":"optimizer.lr"})"},
    Row<Subscribe>{"subscribe", kReads, "send events and the status until the connection ends", "",
                   kSubscribeArguments,
                   "subscribe takes a pattern of event names and an interval of the status in "
                   "seconds, for example: subscribe checkpoint* 5",
                   R"({"events":"*","status_seconds":5})"},
    Row<ReadLogs>{"logs", kChanges, "show the last lines of the log", "", kLogsArguments,
                  "logs takes a number of lines, at most 10000, for example: logs 20, or logs "
                  "evaluator",
                  R"({"lines":20,"evaluator":false,"rank":0})"},
    Row<Evaluate>{"evaluate", kChanges, "ask the evaluator to evaluate a checkpoint again", "",
                  kEvaluateArguments, "evaluate takes a step, for example: evaluate 1200",
                  R"({"step":1200})"},
    Row<ShowBatch>{"show_batch", kChanges, "list the samples of a step", "", kShowBatchArguments,
                   "show_batch takes a step, from 1, and the first sample to list, for example: "
                   "show_batch 1200",
                   R"({"step":1200,"first_sample":0})"},
    Row<Reload>{"reload", kChanges, "read the configuration file again, as SIGHUP does", "",
                kReloadArguments, "reload takes no arguments", R"({"dry_run":true})"},
    Row<Attach>{"attach", kChanges, "the ring, as a file descriptor, to fill batches"},
    Row<Profile>{"profile", kChanges, "profile the next steps", "the trace is written",
                 kProfileArguments,
                 "profile takes a number of steps, for example: profile 20, or profile 20 kernels",
                 R"({"steps":20,"kernels":false})"},
    Row<OpenInspection>{"inspect_open", kChanges,
                        "inspect parameters, gradients, activations and inputs", "", kOpenArguments,
                        "inspect_open takes a glob of names and an interval in steps, for example: "
                        "inspect_open blocks.0.* 10",
                        R"({"glob":"blocks.0.*","every":10,"histograms":true})"},
    Row<ReadInspection>{
        "inspect_read", kReads, "read the records of an inspection", "", kReadArguments,
        "inspect_read takes the number of an inspection and the number of the last record that "
        "was read, for example: inspect_read 3 17",
        R"({"inspection":3,"after":0})"},
    Row<CloseInspection>{
        "inspect_close", kChanges, "end an inspection", "", kCloseArguments,
        "inspect_close takes the number of an inspection, for example: inspect_close 3",
        R"({"inspection":3})"},
};

// Calls `visit` with the table row of `call` and with the call itself.
template <typename Visit>
auto with_row(const Call& call, const Visit& visit) {
  return std::visit(
      [&](const auto& value) {
        using C = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<C, Command> || std::is_same_v<C, FileRequest>) {
          return std::visit(
              [&](const auto& command) {
                return visit(std::get<Row<std::decay_t<decltype(command)>>>(kRows), command);
              },
              value);
        } else {
          return visit(std::get<Row<C>>(kRows), value);
        }
      },
      call);
}

// ---- Errors

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

std::string bounds(std::string_view name, uint64_t min, uint64_t max) {
  return std::string(name) + " must be an integer from " + std::to_string(min) + " to " +
         std::to_string(max);
}

template <typename C>
Status validate(const C& call) {
  if constexpr (requires { call.validate(); }) return call.validate();
  return {};
}

// ---- Plain-text requests

template <typename C>
std::vector<Argument<C>> positional_arguments(const Row<C>& row) {
  std::vector<Argument<C>> positional;
  for (const Argument<C>& argument : row.arguments)
    if (argument.form != Form::kField) positional.push_back(argument);
  return positional;
}

// Checks what can be checked from the word alone. read_word() checks numbers.
template <typename C>
bool is_valid_word(const Argument<C>& argument, std::string_view word) {
  if (std::holds_alternative<std::string C::*>(argument.member))
    return word.size() >= argument.min && word.size() <= argument.max;
  return true;
}

// The argument of each word. Flags are given by their names, in any place among the others. Empty: the
// words are not those of the method.
template <typename C>
std::vector<Argument<C>> match_words(const std::vector<Argument<C>>& positional, WordSpan words) {
  std::vector<Argument<C>> flags, values, matched;
  for (const Argument<C>& argument : positional)
    (std::holds_alternative<bool C::*>(argument.member) ? flags : values).push_back(argument);
  size_t next = 0;
  for (const std::string_view word : words) {
    const auto flag = std::ranges::find(flags, word, &Argument<C>::name);
    if (flag != flags.end()) {
      matched.push_back(*flag);
      flags.erase(flag);
    } else if (next < values.size() && is_valid_word(values[next], word)) {
      matched.push_back(values[next++]);
    } else {
      return {};
    }
  }
  const bool is_complete = next == values.size() || values[next].form != Form::kRequired;
  return is_complete ? matched : std::vector<Argument<C>>();
}

// Not inlined, here and below, because GCC 12 would warn about members that this C does not have.
template <typename C>
[[gnu::noinline]] Status read_word(const Argument<C>& argument, std::string_view word, C* call) {
  if (const auto* flag = std::get_if<bool C::*>(&argument.member)) {
    call->** flag = true;
  } else if (const auto* text = std::get_if<std::string C::*>(&argument.member)) {
    call->** text = word;
  } else {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < argument.min ||
        value > argument.max)
      return invalid(bounds(argument.name, argument.min, argument.max));
    call->*std::get<uint64_t C::*>(argument.member) = value;
  }
  return {};
}

template <typename C>
Result<C> parse(const Row<C>& row, WordSpan words) {
  C call;
  if (row.arguments.empty()) {
    if (words.empty()) return call;
    return invalid(std::string(row.name) + " takes no arguments");
  }
  const auto positional = positional_arguments(row);
  const auto matched = match_words(positional, words);
  const bool needs_words = std::ranges::count(positional, Form::kRequired, &Argument<C>::form) > 0;
  if (matched.size() != words.size() || (words.empty() && needs_words))
    return invalid(std::string(row.usage));
  for (size_t i = 0; i < words.size(); ++i)
    STOKER_RETURN_IF_ERROR(read_word(matched[i], words[i], &call));
  STOKER_RETURN_IF_ERROR(validate(call));
  return call;
}

// ---- Params

// The error in the field. If empty, the field is valid and *value is set.
template <typename C>
std::string read_field(const Argument<C>& argument, const json::value& field, uint64_t* value) {
  const bool is_integer = field.is_int64() || field.is_uint64();
  boost::system::error_code error;
  const auto number = is_integer ? field.to_number<uint64_t>(error) : uint64_t{0};
  if (!is_integer || error || number < argument.min || number > argument.max)
    return bounds(argument.name, argument.min, argument.max);
  *value = number;
  return "";
}

template <typename C>
std::string read_field(const Argument<C>& argument, const json::value& field, bool* value) {
  if (!field.is_bool()) return std::string(argument.name) + " must be true or false";
  *value = field.get_bool();
  return "";
}

template <typename C>
std::string read_field(const Argument<C>& argument, const json::value& field, std::string* value) {
  if (argument.accepts_scalar && !field.is_string() && field.is_primitive()) {
    *value = json::serialize(field);
    return "";
  }
  if (!field.is_string() || field.get_string().size() < argument.min ||
      field.get_string().size() > argument.max) {
    return std::string(argument.name) + " must be a string of at most " +
           std::to_string(argument.max) + " bytes";
  }
  *value = field.get_string();
  return "";
}

// The error in the fields; empty if they are valid.
template <typename C>
[[gnu::noinline]] std::string read_fields(const Row<C>& row, const json::object& fields, C* call) {
  for (const Argument<C>& argument : row.arguments) {
    if (argument.form == Form::kRequired && !fields.contains(argument.name))
      return std::string(argument.name) + " is required";
  }
  for (const Argument<C>& argument : row.arguments) {
    const json::value* const field = fields.if_contains(argument.name);
    if (field == nullptr) continue;
    std::string error_text =
        std::visit([&](auto member) { return read_field(argument, *field, &(call->*member)); },
                   argument.member);
    if (!error_text.empty()) return error_text;
  }
  for (const auto& field : fields) {
    const auto has_this_name = [&](const auto& argument) { return field.key() == argument.name; };
    if (std::ranges::none_of(row.arguments, has_this_name)) return "unknown field";
  }
  return "";
}

template <typename C>
Result<C> parse(const Row<C>& row, const json::value* maybe_params) {
  C call;
  const json::object none;
  const json::object* const fields = maybe_params != nullptr ? maybe_params->if_object() : &none;
  if (row.arguments.empty()) {
    if (fields != nullptr && fields->empty()) return call;
    return invalid(std::string(row.name) + " takes no params");
  }
  const std::string error_text =
      fields != nullptr ? read_fields(row, *fields, &call) : "params must be an object";
  if (!error_text.empty()) return invalid(error_text + "; example: " + std::string(row.example));
  STOKER_RETURN_IF_ERROR(validate(call));
  return call;
}

// ---- Text forms

template <typename C>
std::string text_form(const Row<C>& row) {
  std::string form(row.name);
  for (const Argument<C>& argument : positional_arguments(row)) {
    std::string word(argument.name);
    const bool is_flag = std::holds_alternative<bool C::*>(argument.member);
    if (!is_flag)
      std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
    form += argument.form == Form::kRequired ? " " + word : " [" + word + "]";
  }
  return form;
}

std::string word_of(uint64_t value) { return std::to_string(value); }
std::string word_of(const std::string& value) { return value; }

template <typename C>
std::string words_of(const Row<C>& row, const C& call) {
  std::string words(row.name);
  for (const Argument<C>& argument : row.arguments) {
    if (const auto* flag = std::get_if<bool C::*>(&argument.member)) {
      const bool is_positional = argument.form != Form::kField && call.**flag;
      if (is_positional) words += " " + std::string(argument.name);
    } else if (argument.form == Form::kRequired) {
      words +=
          " " + std::visit([&](auto member) { return word_of(call.*member); }, argument.member);
    }
  }
  return words;
}

template <typename C>
std::string params_of(const Row<C>& row, const C& call) {
  // Flags at their default are omitted, so that an earlier stokerd without them accepts the request.
  const C defaults;
  json::object params;
  for (const Argument<C>& argument : row.arguments) {
    if (const auto* flag = std::get_if<bool C::*>(&argument.member);
        flag != nullptr && call.**flag == defaults.**flag)
      continue;
    std::visit([&](auto member) { params[argument.name] = call.*member; }, argument.member);
  }
  return params.empty() ? "" : json::serialize(params);
}

// ---- Table of all methods

template <typename... C>
std::vector<MethodInfo> method_infos(const Row<C>&... row) {
  return {MethodInfo{row.name, row.changes_state, text_form(row), row.text, row.waits_for}...};
}

// Methods of protocol version 1 that have another name now.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"tap", "inspect_open"}, {"tap_rows", "inspect_read"}, {"untap", "inspect_close"}};

Status unknown_method(std::string_view name) {
  for (const auto& [old_name, new_name] : kRenamed)
    if (name == old_name)
      return Status(StatusCode::kNotFound,
                    quote_for_message(name) + " is " + std::string(new_name) +
                        " in protocol version 2; this client speaks version 1, use the stokerctl "
                        "of this stokerd's release");
  std::string names;
  for (const MethodInfo& info : methods()) names += " " + std::string(info.name);
  return Status(StatusCode::kNotFound,
                "unknown method " + quote_for_message(name) + "; methods:" + names);
}

template <typename Params>
Result<Call> parse_by_name(std::string_view method, Params params) {
  Result<Call> call = unknown_method(method);
  const auto try_row = [&](const auto& row) {
    if (row.name != method) return false;
    auto parsed = parse(row, params);
    if (parsed.ok()) {
      call = Call(*std::move(parsed));
    } else {
      call = parsed.status();
    }
    return true;
  };
  std::apply([&](const auto&... row) { (try_row(row) || ...); }, kRows);
  return call;
}

}  // namespace

Status Hello::validate() const {
  if (protocol_version == kProtocolVersion) return {};
  return invalid("stokerd speaks protocol version " + std::to_string(kProtocolVersion) +
                 ", the client version " + std::to_string(protocol_version) +
                 "; use the stokerctl of this stokerd's release");
}

Status Profile::validate() const {
  if (!kernels || steps <= kMaxKernelSteps) return {};
  return invalid("profile takes at most " + std::to_string(kMaxKernelSteps) +
                 " steps with kernels, for example: profile 20 kernels");
}

Status OpenInspection::validate() const {
  if (parameters || gradients || activations || inputs) return {};
  return invalid(
      "inspect_open requires at least one of parameters, gradients, activations and inputs");
}

std::span<const MethodInfo> methods() {
  static const std::vector<MethodInfo> infos =
      std::apply([](const auto&... row) { return method_infos(row...); }, kRows);
  return infos;
}

const MethodInfo& method_info(const Call& call) {
  const std::string_view name =
      with_row(call, [](const auto& row, const auto&) { return row.name; });
  return *std::ranges::find(methods(), name, &MethodInfo::name);
}

Result<Call> parse_call(std::string_view method, WordSpan words) {
  return parse_by_name(method, words);
}

Result<Call> parse_call(std::string_view method, const json::value* maybe_params) {
  return parse_by_name(method, maybe_params);
}

std::string to_words(const Call& call) {
  return with_row(call, [](const auto& row, const auto& value) { return words_of(row, value); });
}

std::string to_params(const Call& call) {
  return with_row(call, [](const auto& row, const auto& value) { return params_of(row, value); });
}

}  // namespace stoker::control
