#include "shared/control/look_requests.h"

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
  EXPECT_NE(request, nullptr) << line << ": " << std::get<Refusal>(parsed).why.message();
  return request != nullptr ? *request : Request();
}

std::string refused(const std::string& line) {
  const auto parsed = parse_request(line);
  const auto* const refusal = std::get_if<Refusal>(&parsed);
  EXPECT_NE(refusal, nullptr) << line;
  if (refusal == nullptr) return "";
  EXPECT_EQ(refusal->code, ErrorCode::kInvalidParams) << line;
  return refusal->why.message();
}

TEST(LookRequests, AProfileIsANumberOfSteps) {
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

TEST(LookRequests, AProfileOutOfBoundsIsRefused) {
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
    EXPECT_THAT(refused(line), Not(IsEmpty())) << line;
  }
}

TEST(LookRequests, ATapIsAGlobAndWhatToLookAt) {
  const Request words = understood("inspect_open blocks.*.weight 10");
  EXPECT_EQ(words.tap.glob, "blocks.*.weight");
  EXPECT_EQ(words.tap.every, 10u);
  EXPECT_TRUE(words.tap.parameters && words.tap.gradients && words.tap.outputs);
  EXPECT_FALSE(words.tap.histogram);
  const Request object = understood(
      R"({"method":"inspect_open","params":{"glob":"*","parameters":false,"activations":false,"every":5,)"
      R"("steps":3,"histograms":true}})");
  EXPECT_FALSE(object.tap.parameters || object.tap.outputs);
  EXPECT_TRUE(object.tap.gradients && object.tap.histogram);
  EXPECT_EQ(object.tap.steps, 3u);
  EXPECT_EQ(understood("inspect_read 3 17").tap_reference.after, 17u);
  EXPECT_EQ(understood(R"({"method":"inspect_read","params":{"inspection":3}})").tap_reference.tap,
            3u);
  EXPECT_EQ(understood("inspect_close 3").method, Method::kUntap);
}

TEST(LookRequests, ATapOutOfBoundsIsRefused) {
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
    EXPECT_THAT(refused(line), Not(IsEmpty())) << line;
  }
}

}  // namespace
}  // namespace stoker::control
