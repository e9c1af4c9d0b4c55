#include "shared/control/protocol.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/test_seed.h"

namespace stoker::control {
namespace {

using testing::HasSubstr;

struct ValidLine {
  std::string line;
  Call call;
  std::string id = "null";
};

class ValidRequestLineTest : public testing::TestWithParam<ValidLine> {};

TEST_P(ValidRequestLineTest, ParsesRequest) {
  const auto parsed = parse_request(GetParam().line);
  ASSERT_TRUE(std::holds_alternative<Request>(parsed))
      << std::get<ProtocolError>(parsed).why.message();
  const auto& request = std::get<Request>(parsed);
  EXPECT_EQ(request.call, GetParam().call);
  EXPECT_EQ(request.id, GetParam().id);
}

INSTANTIATE_TEST_SUITE_P(
    Protocol, ValidRequestLineTest,
    testing::Values(
        ValidLine{"status", GetStatus{}}, ValidLine{"  status \t", GetStatus{}},
        ValidLine{"status\r", GetStatus{}}, ValidLine{"hello", Hello{}}, ValidLine{"help", Help{}},
        ValidLine{"pause", Pause{}}, ValidLine{"resume", Resume{}},
        ValidLine{"checkpoint", SaveCheckpoint{}}, ValidLine{"stop", Stop{}},
        ValidLine{"get", GetSettings{}}, ValidLine{"get log", GetSettings{"log"}},
        ValidLine{"set optimizer.lr 1e-4", SetSetting{"optimizer.lr", "1e-4"}, "null"},
        ValidLine{"set  log.level\tdebug", SetSetting{"log.level", "debug"}, "null"},
        ValidLine{"unset log.level", UnsetSetting{"log.level"}, "null"},
        ValidLine{R"({"id":1,"method":"status"})", GetStatus{}, "1"},
        ValidLine{R"( {"method":"status"} )", GetStatus{}, "null"},
        ValidLine{R"({"jsonrpc":"2.0","id":-7,"method":"stop","params":{}})", Stop{}, "-7"},
        ValidLine{R"({"id":18446744073709551615,"method":"pause"})", Pause{},
                  "18446744073709551615"},
        ValidLine{R"({"id":"a\"b","method":"hello"})", Hello{}, R"("a\"b")"},
        ValidLine{R"({"id":null,"method":"help"})", Help{}},
        ValidLine{R"({"params":{"value":2.5,"key":"a.b"},"method":"set","id":2})",
                  SetSetting{"a.b", "2.5E0"}, "2"},
        ValidLine{R"({"method":"set","params":{"key":"a.b","value":1}})", SetSetting{"a.b", "1"}},
        ValidLine{R"({"method":"set","params":{"key":"a.b","value":null}})",
                  SetSetting{"a.b", "null"}},
        ValidLine{R"({"method":"set","params":{"key":"a.b","value":"auto"}})",
                  SetSetting{"a.b", "auto"}},
        ValidLine{R"({"method":"get","params":{}})", GetSettings{}},
        ValidLine{R"({"method":"unset","params":{"key":"a.b"}})", UnsetSetting{"a.b"}}));

struct InvalidLine {
  std::string line;
  ErrorCode code;
  std::string message;
  std::string id = "null";
};

class InvalidRequestLineTest : public testing::TestWithParam<InvalidLine> {};

TEST_P(InvalidRequestLineTest, RejectsRequestWithReason) {
  const auto parsed = parse_request(GetParam().line);
  ASSERT_TRUE(std::holds_alternative<ProtocolError>(parsed));
  const auto& error = std::get<ProtocolError>(parsed);
  EXPECT_EQ(error.code, GetParam().code) << error.why.message();
  EXPECT_THAT(error.why.message(), HasSubstr(GetParam().message));
  EXPECT_EQ(error.id, GetParam().id);
  EXPECT_FALSE(error.why.ok());
  const auto reply = parse_reply(render_error(error));
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.status().code(), error.why.code());
  EXPECT_EQ(reply.status().message(), error.why.message());
}

constexpr auto kParse = ErrorCode::kParseError;
constexpr auto kShape = ErrorCode::kInvalidRequest;
constexpr auto kMethod = ErrorCode::kUnknownMethod;
constexpr auto kParams = ErrorCode::kInvalidParams;

INSTANTIATE_TEST_SUITE_P(
    Words, InvalidRequestLineTest,
    testing::Values(InvalidLine{"", kShape, "empty"}, InvalidLine{"   \t ", kShape, "empty"},
                    InvalidLine{"\r", kShape, "empty"},
                    InvalidLine{"statsu", kMethod, "unknown method 'statsu'"},
                    InvalidLine{"STATUS", kMethod, "unknown method"},
                    InvalidLine{"status now", kParams, "no arguments"},
                    InvalidLine{"stop;", kMethod, "unknown method"},
                    InvalidLine{"set", kParams, "a key and a value"},
                    InvalidLine{"set log.level", kParams, "a key and a value"},
                    InvalidLine{"set optimizer.lr 1 2", kParams, "a key and a value"},
                    InvalidLine{"set " + std::string(257, 'a') + " 1", kParams,
                                "a key and a value"},
                    InvalidLine{"set a " + std::string(257, '1'), kParams, "a key and a value"},
                    InvalidLine{"unset", kParams, "unset takes a key"},
                    InvalidLine{"unset a b", kParams, "unset takes a key"},
                    InvalidLine{"get a b", kParams, "get takes at most a key"},
                    InvalidLine{std::string("status\0", 7), kParse, "neither"},
                    InvalidLine{"\x01\x02\xff", kParse, "neither"},
                    InvalidLine{"st\xc3\xa4tus", kParse, "neither"},
                    InvalidLine{"GET / HTTP/1.1", kMethod, "unknown method 'GET'"},
                    InvalidLine{"[1,2]", kMethod, "unknown method"}));

INSTANTIATE_TEST_SUITE_P(
    Json, InvalidRequestLineTest,
    testing::Values(
        InvalidLine{"{", kParse, "not JSON"}, InvalidLine{"{}", kShape, "method is required"},
        InvalidLine{R"({"method":"status"} x)", kParse, "not JSON"},
        InvalidLine{R"({"method":"status"}{"method":"stop"})", kParse, "not JSON"},
        InvalidLine{"{\"method\":\"sta\xfftus\"}", kParse, "not JSON"},
        InvalidLine{std::string("{\"method\":\"sta\0tus\"}", 20), kParse, "not JSON"},
        InvalidLine{R"({"id":3,"method":7})", kShape, "must be a string", "3"},
        InvalidLine{R"({"id":3,"method":"launch"})", kMethod, "'launch'", "3"},
        InvalidLine{R"({"id":[1],"method":"status"})", kShape, "id must be"},
        InvalidLine{R"({"id":1.5,"method":"status"})", kShape, "id must be"},
        InvalidLine{R"({"id":"x","method":"status","extra":1})", kShape, "'extra'", R"("x")"},
        InvalidLine{R"({"id":1,"jsonrpc":"1.0","method":"status"})", kShape, "2.0", "1"},
        InvalidLine{R"({"id":1,"jsonrpc":2,"method":"status"})", kShape, "2.0", "1"},
        InvalidLine{R"({"id":1,"method":"status","method":"stop"})", kShape, "duplicate", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a","key":"b"}})", kShape,
                    "duplicate", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a","\u006bey":"b"}})", kShape,
                    "duplicate", "1"},
        InvalidLine{R"({"id":1,"method":"status","params":{"a":1}})", kParams, "no params", "1"},
        InvalidLine{R"({"id":1,"method":"status","params":[]})", kParams, "no params", "1"},
        InvalidLine{R"({"id":1,"method":"set"})", kParams, "key is required", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a"}})", kParams, "value is required",
                    "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a","value":1,"x":2}})", kParams,
                    "unknown field", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":1,"value":1}})", kParams,
                    "key must be a string", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a","value":{"b":1}}})", kParams,
                    "value must be a string", "1"},
        InvalidLine{R"({"id":1,"method":"set","params":{"key":"a","value":""}})", kParams,
                    "value must be a string", "1"},
        InvalidLine{R"({"id":1,"method":"unset","params":{"key":7}})", kParams,
                    "key must be a string", "1"}));

TEST(ProtocolTest, RejectsDeepJsonWithoutRecursion) {
  std::string line = R"({"method":"status","params":)";
  for (int i = 0; i < 100000; ++i) line += "[";
  const auto parsed = parse_request(line);
  ASSERT_TRUE(std::holds_alternative<ProtocolError>(parsed));
  EXPECT_EQ(std::get<ProtocolError>(parsed).code, ErrorCode::kParseError);
}

TEST(ProtocolTest, RejectsOversizedId) {
  const std::string id(kMaxIdBytes, 'x');
  EXPECT_TRUE(std::holds_alternative<Request>(
      parse_request(R"({"id":")" + id + R"(","method":"status"})")));
  EXPECT_TRUE(std::holds_alternative<ProtocolError>(
      parse_request(R"({"id":")" + id + R"(x","method":"status"})")));
}

TEST(ProtocolTest, OmitsControlCharactersAndLimitsLengthOfErrors) {
  const auto parsed =
      parse_request(R"({"id":1,"method":"\u001b[31m)" + std::string(5000, 'a') + R"("})");
  ASSERT_TRUE(std::holds_alternative<ProtocolError>(parsed));
  const std::string line = render_error(std::get<ProtocolError>(parsed));
  EXPECT_LT(line.size(), 400u);
  EXPECT_EQ(line.find("u001b"), std::string::npos);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

// Null if the line is not a `set` request.
const SetSetting* setting_in(const std::variant<Request, ProtocolError>& parsed) {
  const auto* const request = std::get_if<Request>(&parsed);
  const auto* const command = request ? std::get_if<Command>(&request->call) : nullptr;
  return command ? std::get_if<SetSetting>(command) : nullptr;
}

TEST(ProtocolTest, NeverCrashesOnRandomLines) {
  std::mt19937 random(static_cast<uint32_t>(test::test_seed() + 7));
  const std::string seed =
      R"({"id":1,"method":"set","params":{"key":"optimizer.lr","value":1e-4}})";
  size_t num_settings = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string line = seed;
    for (unsigned flips = random() % 4; flips > 0; --flips)
      line[random() % line.size()] = static_cast<char>(random());
    line.resize(random() % (line.size() + 1));
    const auto parsed = parse_request(line);
    if (const auto* set = setting_in(parsed)) {
      ++num_settings;
      EXPECT_LE(set->key.size(), SetSetting::kMaxKeyBytes);
      EXPECT_LE(set->value.size(), SetSetting::kMaxValueBytes);
    }
  }
  EXPECT_GT(num_settings, 0u);
}

TEST(ProtocolTest, RoundTripsResultOnOneLine) {
  const std::string line = render_result("7", "{\"step\":\n1200}\n");
  EXPECT_EQ(line, R"({"id":7,"result":{"step": 1200}})");
  const auto result = parse_reply(line);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, R"({"step":1200})");
  EXPECT_EQ(render_result("null", ""), R"({"id":null,"result":{}})");
}

TEST(ProtocolTest, ParsesRenderedRequest) {
  const auto parsed = parse_request(render_request("5", "set", R"({"key":"a","value":"b"})"));
  ASSERT_TRUE(std::holds_alternative<Request>(parsed));
  EXPECT_EQ(std::get<Request>(parsed).call, Call(SetSetting{"a", "b"}));
}

TEST(ProtocolTest, RejectsInvalidReply) {
  for (const std::string& line :
       std::vector<std::string>{"", "HTTP/1.1 400", "[]", "{}", R"({"id":1})", R"({"result":3})",
                                R"({"error":null})", R"({"error":{"code":1}})"}) {
    const auto reply = parse_reply(line);
    ASSERT_FALSE(reply.ok()) << line;
    EXPECT_EQ(reply.status().code(), StatusCode::kCorrupt) << line;
  }
}

}  // namespace
}  // namespace stoker::control
