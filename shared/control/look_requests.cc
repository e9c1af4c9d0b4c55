#include "shared/control/look_requests.h"

#include "shared/control/request_fields.h"

namespace stoker::control {
namespace {

constexpr uint64_t kMaxNumber = uint64_t{1} << 53;  // what any JSON reader gives back exactly

}  // namespace

Status ProfileRequest::validate() const {
  if (!kernels || steps <= kMaxKernelSteps) return {};
  return Status(Code::kInvalidArgument,
                "profile takes at most " + std::to_string(kMaxKernelSteps) +
                    " steps with their kernels, such as: profile 20 kernels");
}

Result<ProfileRequest> parse_profile(const boost::json::value* maybe_params) {
  ProfileRequest request;
  RequestFields fields(maybe_params);
  fields.require("steps");
  fields.take_number("steps", 1, ProfileRequest::kMaxSteps, &request.steps);
  fields.take_flag("kernels", &request.kernels);
  STOKER_RETURN_IF_ERROR(fields.finish("{\"steps\":20,\"kernels\":false}"));
  STOKER_RETURN_IF_ERROR(request.validate());
  return request;
}

Result<ProfileRequest> parse_profile(std::span<const std::string_view> words) {
  ProfileRequest request;
  const bool known = words.size() == 1 || (words.size() == 2 && words[1] == "kernels");
  if (!known) {
    return Status(Code::kInvalidArgument,
                  "profile takes a number of steps, such as: profile 20, or profile 20 kernels");
  }
  STOKER_ASSIGN_OR_RETURN(request.steps,
                          number_of_word("steps", words[0], 1, ProfileRequest::kMaxSteps));
  request.kernels = words.size() == 2;
  STOKER_RETURN_IF_ERROR(request.validate());
  return request;
}

Result<TapRequest> parse_tap(const boost::json::value* maybe_params) {
  TapRequest request;
  RequestFields fields(maybe_params);
  fields.require("glob");
  fields.take_text("glob", TapRequest::kMaxGlobBytes, &request.glob);
  fields.take_flag("parameters", &request.parameters);
  fields.take_flag("gradients", &request.gradients);
  fields.take_flag("activations", &request.outputs);
  fields.take_number("every", 1, TapRequest::kMaxEvery, &request.every);
  fields.take_number("steps", 0, kMaxNumber, &request.steps);
  fields.take_flag("histograms", &request.histogram);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"glob":"blocks.0.*","every":10,"histograms":true})"));
  if (request.parameters || request.gradients || request.outputs) return request;
  return Status(Code::kInvalidArgument,
                "inspect_open: requires at least one of parameters, gradients and activations");
}

Result<TapRequest> parse_tap(std::span<const std::string_view> words) {
  TapRequest request;
  if (words.empty() || words.size() > 2 || words[0].size() > TapRequest::kMaxGlobBytes) {
    return Status(Code::kInvalidArgument,
                  "inspect_open takes a glob of names and an interval in steps, such as: "
                  "inspect_open blocks.0.* 10");
  }
  request.glob = words[0];
  if (words.size() == 2) {
    STOKER_ASSIGN_OR_RETURN(request.every,
                            number_of_word("every", words[1], 1, TapRequest::kMaxEvery));
  }
  return request;
}

Result<TapReference> parse_tap_rows(const boost::json::value* maybe_params) {
  TapReference request;
  RequestFields fields(maybe_params);
  fields.require("inspection");
  fields.take_number("inspection", 1, kMaxNumber, &request.tap);
  fields.take_number("after", 0, kMaxNumber, &request.after);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"inspection":3,"after":0})"));
  return request;
}

Result<TapReference> parse_tap_rows(std::span<const std::string_view> words) {
  TapReference request;
  if (words.empty() || words.size() > 2) {
    return Status(
        Code::kInvalidArgument,
        "inspect_read takes the number of an inspection and the number of the last record that "
        "was read, such as: inspect_read 3 17");
  }
  STOKER_ASSIGN_OR_RETURN(request.tap, number_of_word("inspection", words[0], 1, kMaxNumber));
  if (words.size() == 2) {
    STOKER_ASSIGN_OR_RETURN(request.after, number_of_word("after", words[1], 0, kMaxNumber));
  }
  return request;
}

Result<TapReference> parse_untap(const boost::json::value* maybe_params) {
  TapReference request;
  RequestFields fields(maybe_params);
  fields.require("inspection");
  fields.take_number("inspection", 1, kMaxNumber, &request.tap);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"inspection":3})"));
  return request;
}

Result<TapReference> parse_untap(std::span<const std::string_view> words) {
  if (words.size() != 1)
    return Status(Code::kInvalidArgument,
                  "inspect_close takes the number of an inspection, such as: inspect_close 3");
  TapReference request;
  STOKER_ASSIGN_OR_RETURN(request.tap, number_of_word("inspection", words[0], 1, kMaxNumber));
  return request;
}

}  // namespace stoker::control
