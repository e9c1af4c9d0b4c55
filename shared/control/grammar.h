// Grammar: the methods of the control protocol in one table: name, arguments and their bounds, role,
// description. Requests in JSON and in words, `help`, the log and stokerctl's commands follow it.
//
// Threads: functions of their arguments.
// Errors:  of parse_call(): kNotFound: no such method; lists those there are. kInvalidArgument: an
//          argument that is unknown, missing or out of bounds; says which.
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
  bool changes_state = false;  // needs the operate role
  std::string text_form;       // as a person types it: "profile STEPS [kernels]"
  std::string_view text;       // what it does
  std::string_view waits_for;  // the answer comes when this has happened; empty: without a wait
};

std::span<const MethodInfo> methods();  // in the order of `help`
const MethodInfo& method_info(const Call& call);

// `words`: those after the method's name.
Result<Call> parse_call(std::string_view method, std::span<const std::string_view> words);
// `maybe_params`: null where the request has none.
Result<Call> parse_call(std::string_view method, const boost::json::value* maybe_params);

// As a person types it, without what may be left out: "inspect_open blocks.0.*".
std::string to_words(const Call& call);
// The params of a request, a JSON object; empty where the method takes none.
std::string to_params(const Call& call);

}  // namespace stoker::control
