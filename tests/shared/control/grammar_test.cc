#include "shared/control/grammar.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/control/protocol.h"

namespace stoker::control {
namespace {

using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// The call in a valid request line; a default one if the line is invalid.
template <typename C>
C parsed_call(const std::string& line) {
  const auto parsed = parse_request(line);
  const auto* const request = std::get_if<Request>(&parsed);
  EXPECT_NE(request, nullptr) << line << ": " << std::get<ProtocolError>(parsed).why.message();
  if (request == nullptr) return C();
  const C* call = nullptr;
  if constexpr (std::is_constructible_v<Command, C>) {
    const auto* const command = std::get_if<Command>(&request->call);
    if (command != nullptr) call = std::get_if<C>(command);
  } else {
    call = std::get_if<C>(&request->call);
  }
  EXPECT_NE(call, nullptr) << line << " is another method";
  return call != nullptr ? *call : C();
}

std::string rejection(const std::string& line) {
  const auto parsed = parse_request(line);
  const auto* const error = std::get_if<ProtocolError>(&parsed);
  EXPECT_NE(error, nullptr) << line;
  if (error == nullptr) return "";
  EXPECT_EQ(error->code, ErrorCode::kInvalidParams) << line;
  return error->why.message();
}

TEST(GrammarTest, ParsesProfileRequest) {
  EXPECT_EQ(parsed_call<Profile>("profile 20"), (Profile{.steps = 20}));
  EXPECT_EQ(parsed_call<Profile>("profile 20 kernels"), (Profile{.steps = 20, .kernels = true}));
  EXPECT_EQ(
      parsed_call<Profile>(R"({"id":7,"method":"profile","params":{"steps":100,"kernels":true}})"),
      (Profile{.steps = 100, .kernels = true}));
}

TEST(GrammarTest, RejectsProfileRequestOutOfBounds) {
  const std::string usage = "profile takes a number of steps",
                    limits = "steps must be an integer from 1 to 1000",
                    with_kernels = "profile takes at most 100 steps with kernels";
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"profile", usage},
           {"profile 0", limits},
           {"profile 1001", limits},
           {"profile -1", limits},
           {"profile 1e2", limits},
           {"profile 99999999999999999999999", limits},
           {"profile 5 gpu", usage},
           {"profile 5 kernels 1", usage},
           {"profile 101 kernels", with_kernels},
           {R"({"method":"profile"})", "steps is required"},
           {R"({"method":"profile","params":{}})", "steps is required"},
           {R"({"method":"profile","params":[20]})", "params must be an object"},
           {R"({"method":"profile","params":{"steps":"20"}})", limits},
           {R"({"method":"profile","params":{"steps":2.5}})", limits},
           {R"({"method":"profile","params":{"steps":-2}})", limits},
           {R"({"method":"profile","params":{"steps":2,"kernels":1}})",
            "kernels must be true or false"},
           {R"({"method":"profile","params":{"steps":101,"kernels":true}})", with_kernels},
           {R"({"method":"profile","params":{"steps":2,"kernel":true}})", "unknown field"}})
    EXPECT_THAT(rejection(line), StartsWith(why)) << line;
}

TEST(GrammarTest, ParsesInspectionRequest) {
  EXPECT_EQ(parsed_call<OpenInspection>("inspect_open blocks.*.weight 10"),
            (OpenInspection{.glob = "blocks.*.weight", .every = 10}));
  EXPECT_EQ(
      parsed_call<OpenInspection>(
          R"({"method":"inspect_open","params":{"glob":"*","parameters":false,"activations":false,"every":5,)"
          R"("steps":3,"histograms":true}})"),
      (OpenInspection{.glob = "*",
                      .every = 5,
                      .steps = 3,
                      .parameters = false,
                      .activations = false,
                      .histograms = true}));
  EXPECT_EQ(parsed_call<ReadInspection>("inspect_read 3 17"), (ReadInspection{3, 17}));
  EXPECT_EQ(parsed_call<ReadInspection>(R"({"method":"inspect_read","params":{"inspection":3}})"),
            (ReadInspection{3, 0}));
  EXPECT_EQ(parsed_call<CloseInspection>("inspect_close 3"), (CloseInspection{3}));
}

TEST(GrammarTest, RejectsInspectionRequestOutOfBounds) {
  const std::string long_glob(257, '*');
  const std::string usage = "inspect_open takes a glob of names",
                    glob = "glob must be a string of at most 256 bytes",
                    every = "every must be an integer from 1 to ",
                    number = "inspection must be an integer from 1 to ",
                    close = "inspect_close takes the number of an inspection";
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"inspect_open", usage},
           {"inspect_open a 0", every},
           {"inspect_open a 1 2", usage},
           {"inspect_open " + long_glob, usage},
           {R"({"method":"inspect_open","params":{}})", "glob is required"},
           {R"({"method":"inspect_open","params":{"glob":""}})", glob},
           {R"({"method":"inspect_open","params":{"glob":7}})", glob},
           {R"({"method":"inspect_open","params":{"glob":")" + long_glob + "\"}}", glob},
           {R"({"method":"inspect_open","params":{"glob":"*","every":0}})", every},
           {R"({"method":"inspect_open","params":{"glob":"*","histogram":true}})", "unknown field"},
           {R"({"method":"inspect_open","params":{"glob":"*","parameters":false,)"
            R"("gradients":false,"activations":false}})",
            "inspect_open requires at least one of parameters, gradients"},
           {"inspect_read", "inspect_read takes the number of an inspection"},
           {"inspect_read x", number},
           {"inspect_read 1 -1", "after must be an integer from 0 to "},
           {"inspect_close", close},
           {"inspect_close 0", number},
           {"inspect_close 1 2", close},
           {R"({"method":"inspect_close","params":{"inspection":1,"after":2}})", "unknown field"}})
    EXPECT_THAT(rejection(line), StartsWith(why)) << line;
}

// One call of each method with its plain-text arguments and its params.
struct MethodCase {
  Call call;
  std::string words;
  std::string params;
};

std::span<const MethodCase> all_methods() {
  // Not a vector, for which compilers need minutes.
  static const MethodCase cases[] = {
      {Hello{}, "hello", R"({"protocol_version":2})"},
      {Help{}, "help", ""},
      {GetStatus{}, "status", ""},
      {GetThreads{}, "threads", ""},
      {Pause{.release = true}, "pause release", R"({"release":true})"},
      {Resume{}, "resume", ""},
      {SaveCheckpoint{.wait = false}, "checkpoint", R"({"wait":false})"},
      {Stop{}, "stop", ""},
      {SetSetting{"optimizer.lr", "2.5e-05"}, "set optimizer.lr 2.5e-05",
       R"({"key":"optimizer.lr","value":"2.5e-05"})"},
      {UnsetSetting{"log.level"}, "unset log.level", R"({"key":"log.level"})"},
      {GetSettings{"train"}, "get", R"({"key":"train"})"},
      {Subscribe{.events = "checkpoint *", .status_seconds = 5}, "subscribe",
       R"({"events":"checkpoint *","status_seconds":5})"},
      {FileRequest(ReadLogs{.lines = 3, .rank = 1}), "logs", R"({"lines":3,"rank":1})"},
      {FileRequest(Evaluate{1200}), "evaluate 1200", R"({"step":1200})"},
      {FileRequest(ShowBatch{.step = 1200, .first_sample = 1000}), "show_batch 1200",
       R"({"step":1200,"first_sample":1000})"},
      {Reload{.dry_run = true}, "reload", R"({"dry_run":true})"},
      {Attach{}, "attach", ""},
      {Profile{.steps = 20, .kernels = true}, "profile 20 kernels",
       R"({"steps":20,"kernels":true})"},
      {OpenInspection{.glob = "a.*", .gradients = false}, "inspect_open a.*",
       R"({"glob":"a.*","every":1,"steps":0,"gradients":false})"},
      {ReadInspection{3, 17}, "inspect_read 3", R"({"inspection":3,"after":17})"},
      {CloseInspection{3}, "inspect_close 3", R"({"inspection":3})"},
  };
  return cases;
}

TEST(GrammarTest, ParsesWhatItRenders) {
  ASSERT_EQ(all_methods().size(), methods().size());
  for (const MethodCase& method : all_methods()) {
    EXPECT_EQ(to_words(method.call), method.words);
    EXPECT_EQ(to_params(method.call), method.params);
    const auto parsed =
        parse_request(render_request("1", method_info(method.call).name, method.params));
    ASSERT_TRUE(std::holds_alternative<Request>(parsed)) << method.words;
    EXPECT_EQ(std::get<Request>(parsed).call, method.call) << method.words;
    EXPECT_TRUE(std::holds_alternative<Request>(parse_request(method.words))) << method.words;
  }
}

TEST(GrammarTest, AcceptsFlagsInAnyPlace) {
  const auto call_of = [](const std::string& line) {
    const auto parsed = parse_request(line);
    const auto* const request = std::get_if<Request>(&parsed);
    EXPECT_NE(request, nullptr) << line;
    return request == nullptr ? Call(Help{}) : request->call;
  };
  EXPECT_EQ(call_of("logs evaluator"), Call(FileRequest(ReadLogs{.evaluator = true})));
  EXPECT_EQ(call_of("logs evaluator 3"),
            Call(FileRequest(ReadLogs{.lines = 3, .evaluator = true})));
  EXPECT_EQ(call_of("logs 3 evaluator"),
            Call(FileRequest(ReadLogs{.lines = 3, .evaluator = true})));
  for (const char* const line : {"logs evaluator evaluator", "logs 3 4", "logs trainer",
                                 "profile kernels", "profile 5 5", "pause now", "set a"})
    EXPECT_THAT(rejection(line), Not(IsEmpty())) << line;
}

TEST(GrammarTest, OmitsFlagsThatHaveTheirDefault) {
  EXPECT_EQ(to_params(Pause{}), "");
  EXPECT_EQ(to_params(Reload{}), "");
  EXPECT_EQ(to_params(SaveCheckpoint{}), "");
  EXPECT_EQ(to_params(SetSetting{.key = "a", .value = "1"}), R"({"key":"a","value":"1"})");
  EXPECT_EQ(to_params(SetSetting{.key = "a", .value = "1", .dry_run = true}),
            R"({"key":"a","value":"1","dry_run":true})");
}

TEST(GrammarTest, DescribesArgumentsInTextForm) {
  std::vector<std::string> forms;
  for (const MethodInfo& info : methods()) forms.push_back(info.text_form);
  const std::vector<std::string> expected = {"hello [PROTOCOL_VERSION]",
                                             "help",
                                             "status",
                                             "threads",
                                             "pause [release]",
                                             "resume",
                                             "checkpoint",
                                             "stop",
                                             "get [KEY]",
                                             "set KEY VALUE",
                                             "unset KEY",
                                             "subscribe [EVENTS] [STATUS_SECONDS]",
                                             "logs [LINES] [evaluator]",
                                             "evaluate STEP",
                                             "show_batch STEP [FIRST_SAMPLE]",
                                             "reload",
                                             "attach",
                                             "profile STEPS [kernels]",
                                             "inspect_open GLOB [EVERY]",
                                             "inspect_read INSPECTION [AFTER]",
                                             "inspect_close INSPECTION"};
  EXPECT_EQ(forms, expected);
}

}  // namespace
}  // namespace stoker::control
