#include "shared/control/look_requests.h"

#include "shared/control/request_fields.h"

namespace stoker::control {

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

}  // namespace stoker::control
