// Grammar: the methods of the control protocol in one table with name, arguments, bounds, role and
// description. Parsing of JSON and plain-text requests, `help`, the log and stokerctl's commands
// all use this table.
//
// Threads: functions of their arguments.
// Errors:  parse_call(): kNotFound: no such method; lists the existing ones. kInvalidArgument: an
//          argument is unknown, missing or out of range; names it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "shared/base/status.h"
#include "shared/control/command.h"

namespace stoker::control {

struct MethodInfo {
  std::string_view name;
  bool changes_state = false;  // requires the operate role
  std::string text_form;       // plain-text syntax: "profile STEPS [kernels]"
  std::string_view text;       // description
  std::string_view waits_for;  // the event that the reply waits for; empty: immediate reply
};

std::span<const MethodInfo> methods();  // in the order of `help`
const MethodInfo& method_info(const Call& call);

// `words`: the words after the method name.
Result<Call> parse_call(std::string_view method, std::span<const std::string_view> words);
// `maybe_params`: null if the request has none.
Result<Call> parse_call(std::string_view method, const boost::json::value* maybe_params);

// As plain text, without optional arguments: "inspect_open blocks.0.*".
std::string to_words(const Call& call);
// The params of a request, a JSON object; empty if the method has none.
std::string to_params(const Call& call);

}  // namespace stoker::control
