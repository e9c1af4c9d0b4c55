// A mapping of patterns to functions: model.init.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string with_init(const std::string& init) {
  return kImageData + "model:\n  name: mlp\n  init: " + init + "\n";
}
std::vector<InitRule> init_of(const std::string& init, const Flags& flags = {}) {
  return valid_config(with_init(init), flags).model.init;
}

TEST(InitSettingsTest, ReadsFunctionsInOrderOfFile) {
  EXPECT_EQ(init_of("{weight: {normal: {std: 0.1}}, bias: {constant: 0.1}}"),
            (std::vector<InitRule>{{"weight", NormalInit{.std = 0.1}},
                                   {"bias", ConstantInit{.val = 0.1}}}));
  EXPECT_EQ(
      init_of("{\"layer4.*\": zeros, a: ones, b: {kaiming_normal: {mode: fan_out, nonlinearity: "
              "relu}}, c: {trunc_normal: {a: -1}}, d: xavier_uniform, e: {orthogonal: {gain: 2}}}"),
      (std::vector<InitRule>{
          {"layer4.*", ZerosInit{}},
          {"a", OnesInit{}},
          {"b", KaimingNormalInit{.mode = FanMode::kFanOut, .nonlinearity = Nonlinearity::kRelu}},
          {"c", TruncNormalInit{.a = -1}},
          {"d", XavierUniformInit{}},
          {"e", OrthogonalInit{.gain = 2}}}));
  EXPECT_THAT(init_of("{}"), IsEmpty());
}

TEST(InitSettingsTest, AcceptsOverrides) {
  const std::string zeros = "{weight: zeros, bias: zeros}";
  EXPECT_EQ(init_of(zeros, {"model.init.bias={uniform: {a: -1}}"}),
            (std::vector<InitRule>{{"weight", ZerosInit{}}, {"bias", UniformInit{.a = -1}}}));
  EXPECT_EQ(init_of(zeros, {"model.init.bias="}), (std::vector<InitRule>{{"weight", ZerosInit{}}}));
  EXPECT_THAT(init_of(zeros, {"model.init="}), IsEmpty());
}

TEST(InitSettingsTest, WritesFunctionsWithTheirArguments) {
  const Config config = valid_config(
      with_init("{bias: zeros, \"fc.*\": {constant: 0.5}, weight: {normal: {std: 0.1}}}"));
  EXPECT_THAT(to_yaml(config), HasSubstr("  init: {bias: zeros, \"fc.*\": {constant: 0.5}, weight: "
                                         "{normal: {mean: 0, std: 0.1}}}\n"));
  EXPECT_EQ(valid_config(to_yaml(config)), config);
}

TEST(InitSettingsTest, ChangesDigestWithOrder) {
  const auto digest_of = [](const std::string& init) {
    return digest(valid_config(with_init(init)));
  };
  EXPECT_EQ(digest_of("{}"), digest(valid_config(kImageData + "model: {name: mlp}\n")));
  EXPECT_NE(digest_of("{a: zeros, b: ones}"), digest_of("{b: ones, a: zeros}"));
}

TEST(InitSettingsTest, ReportsErrorsWithPattern) {
  EXPECT_THAT(
      errors_of(with_init("{weight: {normall: {}}}")),
      ElementsAre(AllOf(StartsWith("my.yaml:5:18: model.init.weight: must be zeros, ones, "),
                        HasSubstr("got 'normall'; did you mean 'normal'?"))));
  EXPECT_THAT(errors_of(with_init("{weight: {normal: {}, zeros: {}}}")),
              ElementsAre(HasSubstr("model.init.weight: must be a mapping with one key, "
                                    "'{name: {arguments}}', got a mapping")));
  EXPECT_THAT(errors_of(with_init("{weight: {normal: {std: 0}}, bias: {constant: x}}")),
              ElementsAre(HasSubstr("model.init.weight.normal.std: must be a number above 0"),
                          HasSubstr("model.init.bias.constant: must be a number from")));
  EXPECT_THAT(errors_of(with_init("{weight: {uniform: {a: 1, b: 0.5}}}")),
              ElementsAre(HasSubstr("model.init.weight.uniform.b: must be above a")));
  EXPECT_THAT(errors_of(with_init("[zeros]")),
              ElementsAre(HasSubstr("model.init: must be a mapping such as {\"*\": zeros}")));
}

}  // namespace
}  // namespace stoker::config::test
