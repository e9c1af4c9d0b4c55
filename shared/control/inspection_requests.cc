#include "shared/control/inspection_requests.h"

#include "shared/control/request_fields.h"

namespace stoker::control {
namespace {

constexpr uint64_t kMaxNumber = uint64_t{1} << 53;  // what any JSON reader gives back exactly

}  // namespace

Status ProfileRequest::validate() const {
  if (!kernels || steps <= kMaxKernelSteps) return {};
  return Status(StatusCode::kInvalidArgument,
                "profile takes at most " + std::to_string(kMaxKernelSteps) +
                    " steps with their kernels, such as: profile 20 kernels");
}

Result<ProfileRequest> parse_profile(const boost::json::value* maybe_params) {
  ProfileRequest request;
  RequestFields fields(maybe_params);
  fields.require("steps");
  fields.read_number("steps", 1, ProfileRequest::kMaxSteps, &request.steps);
  fields.read_bool("kernels", &request.kernels);
  STOKER_RETURN_IF_ERROR(fields.finish("{\"steps\":20,\"kernels\":false}"));
  STOKER_RETURN_IF_ERROR(request.validate());
  return request;
}

Result<ProfileRequest> parse_profile(std::span<const std::string_view> words) {
  ProfileRequest request;
  const bool known = words.size() == 1 || (words.size() == 2 && words[1] == "kernels");
  if (!known) {
    return Status(StatusCode::kInvalidArgument,
                  "profile takes a number of steps, such as: profile 20, or profile 20 kernels");
  }
  STOKER_ASSIGN_OR_RETURN(request.steps,
                          parse_number("steps", words[0], 1, ProfileRequest::kMaxSteps));
  request.kernels = words.size() == 2;
  STOKER_RETURN_IF_ERROR(request.validate());
  return request;
}

Result<InspectionRequest> parse_inspect(const boost::json::value* maybe_params) {
  InspectionRequest request;
  RequestFields fields(maybe_params);
  fields.require("glob");
  fields.read_text("glob", InspectionRequest::kMaxGlobBytes, &request.glob);
  fields.read_bool("parameters", &request.parameters);
  fields.read_bool("gradients", &request.gradients);
  fields.read_bool("activations", &request.outputs);
  fields.read_number("every", 1, InspectionRequest::kMaxEvery, &request.every);
  fields.read_number("steps", 0, kMaxNumber, &request.steps);
  fields.read_bool("histograms", &request.histogram);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"glob":"blocks.0.*","every":10,"histograms":true})"));
  if (request.parameters || request.gradients || request.outputs) return request;
  return Status(StatusCode::kInvalidArgument,
                "inspect_open: requires at least one of parameters, gradients and activations");
}

Result<InspectionRequest> parse_inspect(std::span<const std::string_view> words) {
  InspectionRequest request;
  if (words.empty() || words.size() > 2 || words[0].size() > InspectionRequest::kMaxGlobBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "inspect_open takes a glob of names and an interval in steps, such as: "
                  "inspect_open blocks.0.* 10");
  }
  request.glob = words[0];
  if (words.size() == 2) {
    STOKER_ASSIGN_OR_RETURN(request.every,
                            parse_number("every", words[1], 1, InspectionRequest::kMaxEvery));
  }
  return request;
}

Result<InspectionId> parse_inspect_read(const boost::json::value* maybe_params) {
  InspectionId request;
  RequestFields fields(maybe_params);
  fields.require("inspection");
  fields.read_number("inspection", 1, kMaxNumber, &request.inspection);
  fields.read_number("after", 0, kMaxNumber, &request.after);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"inspection":3,"after":0})"));
  return request;
}

Result<InspectionId> parse_inspect_read(std::span<const std::string_view> words) {
  InspectionId request;
  if (words.empty() || words.size() > 2) {
    return Status(
        StatusCode::kInvalidArgument,
        "inspect_read takes the number of an inspection and the number of the last record that "
        "was read, such as: inspect_read 3 17");
  }
  STOKER_ASSIGN_OR_RETURN(request.inspection, parse_number("inspection", words[0], 1, kMaxNumber));
  if (words.size() == 2) {
    STOKER_ASSIGN_OR_RETURN(request.after, parse_number("after", words[1], 0, kMaxNumber));
  }
  return request;
}

Result<InspectionId> parse_inspect_close(const boost::json::value* maybe_params) {
  InspectionId request;
  RequestFields fields(maybe_params);
  fields.require("inspection");
  fields.read_number("inspection", 1, kMaxNumber, &request.inspection);
  STOKER_RETURN_IF_ERROR(fields.finish(R"({"inspection":3})"));
  return request;
}

Result<InspectionId> parse_inspect_close(std::span<const std::string_view> words) {
  if (words.size() != 1)
    return Status(StatusCode::kInvalidArgument,
                  "inspect_close takes the number of an inspection, such as: inspect_close 3");
  InspectionId request;
  STOKER_ASSIGN_OR_RETURN(request.inspection, parse_number("inspection", words[0], 1, kMaxNumber));
  return request;
}

}  // namespace stoker::control
