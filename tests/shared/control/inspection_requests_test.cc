#include "shared/control/inspection_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/control/protocol.h"

namespace stoker::control {
namespace {

using testing::IsEmpty;
using testing::Not;

Request understood(const std::string& line) {
  const auto parsed = parse_request(line);
  const auto* const request = std::get_if<Request>(&parsed);
  EXPECT_NE(request, nullptr) << line << ": " << std::get<ProtocolError>(parsed).why.message();
  return request != nullptr ? *request : Request();
}

std::string rejected(const std::string& line) {
  const auto parsed = parse_request(line);
  const auto* const error = std::get_if<ProtocolError>(&parsed);
  EXPECT_NE(error, nullptr) << line;
  if (error == nullptr) return "";
  EXPECT_EQ(error->code, ErrorCode::kInvalidParams) << line;
  return error->why.message();
}

TEST(InspectionRequestsTest, ParsesProfileRequest) {
  const Request words = understood("profile 20");
  EXPECT_EQ(words.method, Method::kProfile);
  EXPECT_EQ(words.profile.steps, 20u);
  EXPECT_FALSE(words.profile.kernels);
  EXPECT_TRUE(understood("profile 20 kernels").profile.kernels);
  const Request object =
      understood(R"({"id":7,"method":"profile","params":{"steps":100,"kernels":true}})");
  EXPECT_EQ(object.id, "7");
  EXPECT_EQ(object.profile.steps, 100u);
  EXPECT_TRUE(object.profile.kernels);
}

TEST(InspectionRequestsTest, RejectsProfileRequestOutOfBounds) {
  for (const char* line :
       {"profile", "profile 0", "profile 1001", "profile -1", "profile 1e2", "profile 5 gpu",
        "profile 5 kernels 1", "profile 101 kernels", "profile 99999999999999999999999",
        R"({"method":"profile"})", R"({"method":"profile","params":{}})",
        R"({"method":"profile","params":[20]})", R"({"method":"profile","params":{"steps":"20"}})",
        R"({"method":"profile","params":{"steps":2.5}})",
        R"({"method":"profile","params":{"steps":-2}})",
        R"({"method":"profile","params":{"steps":2,"kernels":1}})",
        R"({"method":"profile","params":{"steps":101,"kernels":true}})",
        R"({"method":"profile","params":{"steps":2,"kernel":true}})"}) {
    EXPECT_THAT(rejected(line), Not(IsEmpty())) << line;
  }
}

TEST(InspectionRequestsTest, ParsesInspectionRequest) {
  const Request words = understood("inspect_open blocks.*.weight 10");
  EXPECT_EQ(words.inspection.glob, "blocks.*.weight");
  EXPECT_EQ(words.inspection.every, 10u);
  EXPECT_TRUE(words.inspection.parameters && words.inspection.gradients &&
              words.inspection.outputs);
  EXPECT_FALSE(words.inspection.histogram);
  const Request object = understood(
      R"({"method":"inspect_open","params":{"glob":"*","parameters":false,"activations":false,"every":5,)"
      R"("steps":3,"histograms":true}})");
  EXPECT_FALSE(object.inspection.parameters || object.inspection.outputs);
  EXPECT_TRUE(object.inspection.gradients && object.inspection.histogram);
  EXPECT_EQ(object.inspection.steps, 3u);
  EXPECT_EQ(understood("inspect_read 3 17").inspection_id.after, 17u);
  EXPECT_EQ(
      understood(R"({"method":"inspect_read","params":{"inspection":3}})").inspection_id.inspection,
      3u);
  EXPECT_EQ(understood("inspect_close 3").method, Method::kInspectClose);
}

TEST(InspectionRequestsTest, RejectsInspectionRequestOutOfBounds) {
  const std::string long_glob(257, '*');
  for (const std::string& line :
       {std::string("inspect_open"), std::string("inspect_open a 0"),
        std::string("inspect_open a 1 2"), "inspect_open " + long_glob,
        std::string(R"({"method":"inspect_open","params":{}})"),
        std::string(R"({"method":"inspect_open","params":{"glob":""}})"),
        std::string(R"({"method":"inspect_open","params":{"glob":7}})"),
        R"({"method":"inspect_open","params":{"glob":")" + long_glob + "\"}}",
        std::string(R"({"method":"inspect_open","params":{"glob":"*","every":0}})"),
        std::string(R"({"method":"inspect_open","params":{"glob":"*","histogram":true}})"),
        std::string(R"({"method":"inspect_open","params":{"glob":"*","parameters":false,)"
                    R"("gradients":false,"activations":false}})"),
        std::string("inspect_read"), std::string("inspect_read x"),
        std::string("inspect_read 1 -1"), std::string("inspect_close"),
        std::string("inspect_close 0"), std::string("inspect_close 1 2"),
        std::string(R"({"method":"inspect_close","params":{"inspection":1,"after":2}})")}) {
    EXPECT_THAT(rejected(line), Not(IsEmpty())) << line;
  }
}

}  // namespace
}  // namespace stoker::control
