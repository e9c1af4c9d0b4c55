#include "shared/pretrained/state_dict_mapping.h"

#include <algorithm>
#include <random>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::pretrained {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

TensorSpec f32(const std::string& name, std::vector<int64_t> shape = {2}) {
  return {name, DType::kF32, std::move(shape)};
}

class FakeFile final : public checkpoint::TensorSource {
 public:
  explicit FakeFile(std::vector<TensorSpec> specs, std::vector<std::string> non_tensor_keys = {})
      : specs_(std::move(specs)), others_(std::move(non_tensor_keys)) {}
  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  const std::vector<std::string>& non_tensor_keys() const override { return others_; }
  const TensorSpec* find(const std::string& name) const override {
    const auto found = std::ranges::find(specs_, name, &TensorSpec::name);
    return found == specs_.end() ? nullptr : &*found;
  }
  Status read(const std::string&, std::span<std::byte>) const override { return {}; }

 private:
  std::vector<TensorSpec> specs_;
  std::vector<std::string> others_;
};

std::vector<std::string> source_names(const StateDictMapping& mapping) {
  std::vector<std::string> names;
  for (const auto& load : mapping.loads) names.push_back(load.from);
  return names;
}

const std::vector<TensorSpec> kNeeded = {f32("body.w"), f32("body.b"), f32("head.w", {2, 3})};

TEST(StateDictMappingTest, LoadsMatchingTensors) {
  const StateDictMapping mapping =
      map_state_dict(kNeeded, FakeFile({f32("head.w", {2, 3}), f32("body.b"), f32("body.w")}), {});
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(source_names(mapping), ElementsAre("body.w", "body.b", "head.w"));
  EXPECT_THAT(mapping.unexpected, IsEmpty());
  EXPECT_THAT(mapping.missing, IsEmpty());
}

TEST(StateDictMappingTest, RenamesByFirstMatchingRule) {
  const FakeFile file({f32("module.body.w"), f32("module.body.bias"), f32("fc.0.w", {2, 3})});
  const StateDictMapping mapping = map_state_dict(
      kNeeded, file,
      {.key_mapping = {{"*.bias", "body.b"}, {"module.*", "*"}, {"fc.?.*", "head.*"}}});
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(source_names(mapping), ElementsAre("module.body.w", "module.body.bias", "fc.0.w"));
}

TEST(StateDictMappingTest, SuggestsARuleForAPrefixOfOneSide) {
  const StateDictMapping longer = map_state_dict(
      kNeeded,
      FakeFile({f32("module._orig_mod.body.w"), f32("module._orig_mod.body.b"), f32("ema.body.w")}),
      {});
  EXPECT_THAT(
      longer.status().message(),
      HasSubstr("the names in the file have the prefix 'module._orig_mod.'; set "
                "model.pretrained.key_mapping: [{from: \"module._orig_mod.*\", to: \"*\"}]"));
  EXPECT_THAT(longer.report(), HasSubstr("problem missing body.w F32 [2]\n"));
  const StateDictMapping shorter = map_state_dict(kNeeded, FakeFile({f32("w"), f32("b")}), {});
  EXPECT_THAT(shorter.status().message(),
              HasSubstr("the names in the model have the prefix 'body.'; set "
                        "model.pretrained.key_mapping: [{from: \"*\", to: \"body.*\"}]"));
  EXPECT_THAT(
      map_state_dict(kNeeded, FakeFile({f32("a.x"), f32("a.body.w"), f32("a.y")}), {}).suggestion,
      IsEmpty())
      << "of a minority";
}

TEST(StateDictMappingTest, SuggestsNoRuleThatDoesNotHelp) {
  const StateDictMapping other_dtype =
      map_state_dict({f32("w"), f32("a.w")}, FakeFile({{"a.w", DType::kF64, {2}}}), {});
  EXPECT_THAT(other_dtype.status().message(), HasSubstr("has a.w F64 [2], expected a.w F32 [2]"));
  EXPECT_THAT(map_state_dict({f32("w")}, FakeFile({f32("a[0].w")}), {}).suggestion, IsEmpty())
      << "[ would have to be escaped";
  EXPECT_THAT(map_state_dict({f32("a.tok.weight")}, FakeFile({f32("wte.weight")}), {},
                             checkpoint::HuggingFaceNames::find("gpt2"))
                  .suggestion,
              IsEmpty())
      << "the table does not know a.wte.weight";
}

// Combines a wrong shape, a wrong dtype, a missing and an unexpected tensor.
TEST(StateDictMappingTest, ReportsEveryMismatchAndLoadsNothing) {
  const FakeFile file({f32("body.w", {3}), {"body.b", DType::kF64, {2}}, f32("extra")});
  const StateDictMapping mapping = map_state_dict(kNeeded, file, {});
  EXPECT_THAT(mapping.problems,
              ElementsAre("has body.w F32 [3], expected body.w F32 [2]",
                          "has body.b F64 [2], expected body.b F32 [2]",
                          "missing head.w F32 [2, 3]", "unexpected extra F32 [2]"));
  EXPECT_EQ(mapping.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(mapping.status().message(), HasSubstr("unexpected extra"));
  EXPECT_THAT(mapping.report(), HasSubstr("problem missing head.w F32 [2, 3]\n"));
}

TEST(StateDictMappingTest, ReportsFirstMismatchesAndCountOfRest) {
  std::vector<TensorSpec> many;
  for (int i = 0; i < 30; ++i) many.push_back(f32("x" + std::to_string(i)));
  const StateDictMapping mapping = map_state_dict(kNeeded, FakeFile(many), {});
  EXPECT_THAT(mapping.problems, SizeIs(33));
  EXPECT_THAT(mapping.status().message(), HasSubstr("; and 28 more"));
}

TEST(StateDictMappingTest, ExcludesTensorsOnBothSides) {
  const FakeFile file({f32("body.w"), f32("body.b"), f32("fc.w", {9, 9})});
  const StateDictMapping mapping =
      map_state_dict(kNeeded, file, {.key_mapping = {{"fc.*", "head.*"}}, .exclude = {"head.*"}});
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(mapping.missing, ElementsAre("head.w F32 [2, 3], ignored"));
  EXPECT_THAT(mapping.unexpected, ElementsAre("fc.w F32 [9, 9] (here head.w), ignored"));
}

TEST(StateDictMappingTest, RequiresOnlyCommonTensorsToMatchWithoutStrict) {
  const FakeFile file({f32("body.w"), f32("extra")}, {"epoch"});
  const StateDictMapping mapping = map_state_dict(kNeeded, file, {.strict = false});
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(source_names(mapping), ElementsAre("body.w"));
  EXPECT_THAT(mapping.missing,
              ElementsAre("body.b F32 [2], not in the file", "head.w F32 [2, 3], not in the file"));
  EXPECT_THAT(mapping.unexpected,
              ElementsAre("extra F32 [2], not in the model", "epoch, not a tensor"));
  EXPECT_EQ(
      map_state_dict(kNeeded, FakeFile({f32("body.w", {4})}), {.strict = false}).status().code(),
      StatusCode::kMismatch);
}

// As PyTorch's load_state_dict().
TEST(StateDictMappingTest, DoesNotNeedNumBatchesTracked) {
  const TensorSpec counter{"bn1.num_batches_tracked", DType::kI64, {}};
  const StateDictMapping mapping =
      map_state_dict({f32("bn1.weight"), counter}, FakeFile({f32("bn1.weight")}), {});
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(source_names(mapping), ElementsAre("bn1.weight"));
  EXPECT_THAT(mapping.missing,
              ElementsAre("bn1.num_batches_tracked I64 [], not in the file, unchanged"));
}

TEST(StateDictMappingTest, ExplainsPositionsOfOtherImages) {
  const std::string name = "encoder.pos_embedding";
  EXPECT_THAT(map_state_dict({f32(name, {1, 5, 2})}, FakeFile({f32(name, {1, 10, 2})}), {})
                  .status()
                  .message(),
              HasSubstr("expected encoder.pos_embedding F32 [1, 5, 2], for another number of "
                        "patches: use images, and patches, of the size of the file"));
}

TEST(StateDictMappingTest, RejectsFileWithoutMatchingTensor) {
  const StateDictMapping mapping =
      map_state_dict(kNeeded, FakeFile({f32("a"), f32("b")}), {.strict = false});
  EXPECT_THAT(mapping.status().message(), HasSubstr("no tensor of the file"));
}

TEST(StateDictMappingTest, RejectsUnmatchedPatterns) {
  const FakeFile file(kNeeded);
  EXPECT_THAT(
      map_state_dict(kNeeded, file, {.key_mapping = {{"module.*", "*"}}}).status().message(),
      HasSubstr("model.pretrained.key_mapping: from 'module.*' matches no tensor"));
  EXPECT_THAT(map_state_dict(kNeeded, file, {.key_mapping = {{"*", "*"}, {"body.*", "*"}}})
                  .status()
                  .message(),
              HasSubstr("from 'body.*'"));
  EXPECT_THAT(map_state_dict(kNeeded, file, {.exclude = {"tail.*"}}).status().message(),
              HasSubstr("model.pretrained.exclude: 'tail.*' matches no tensor"));
}

TEST(StateDictMappingTest, RejectsTwoTensorsOfSameName) {
  const FakeFile file({f32("body.w"), f32("ema.body.w"), f32("body.b"), f32("head.w", {2, 3})});
  EXPECT_THAT(map_state_dict(kNeeded, file, {.key_mapping = {{"ema.*", "*"}}}).status().message(),
              HasSubstr("'body.w' and 'ema.body.w' are both mapped to 'body.w'"));
}

TEST(StateDictMappingTest, WidensHalfToFloatButNotDouble) {
  EXPECT_TRUE(is_widening(DType::kF16, DType::kF32));
  EXPECT_TRUE(is_widening(DType::kBF16, DType::kF32));
  EXPECT_FALSE(is_widening(DType::kF64, DType::kF32));
  EXPECT_FALSE(is_widening(DType::kI64, DType::kF32));
  const StateDictMapping mapping =
      map_state_dict({f32("w")}, FakeFile({{"w", DType::kBF16, {2}}}), {});
  EXPECT_TRUE(mapping.status().ok());
  EXPECT_THAT(mapping.loaded, ElementsAre("w F32 [2], from w BF16 [2]"));
}

TEST(StateDictMappingTest, LoadsCopiesOfATiedWeightOnlyIfItIsNotExcluded) {
  const std::vector<TensorSpec> needed{f32("tok.weight", {4, 2}), f32("ln.weight")};
  const FakeFile file(
      {f32("wte.weight", {4, 2}), f32("lm_head.weight", {4, 2}), f32("ln_f.weight")});
  const auto* const names = checkpoint::HuggingFaceNames::find("gpt2");
  const StateDictMapping both = map_state_dict(needed, file, {}, names);
  EXPECT_THAT(source_names(both), ElementsAre("wte.weight", "ln_f.weight"));
  ASSERT_THAT(both.copies, SizeIs(1));
  EXPECT_EQ(both.copies.front().from, "lm_head.weight");
  EXPECT_THAT(both.loaded.back(), HasSubstr("tok.weight F32 [4, 2], again from lm_head.weight"));
  const StateDictMapping excluded = map_state_dict(needed, file, {.exclude = {"tok.*"}}, names);
  EXPECT_TRUE(excluded.status().ok()) << excluded.status().to_string();
  EXPECT_THAT(source_names(excluded), ElementsAre("ln_f.weight"));
  EXPECT_THAT(excluded.copies, IsEmpty());
}

TEST(StateDictMappingTest, DoesNotTieAnExcludedHead) {
  const FakeFile file({f32("wte.weight", {4, 2}), f32("lm_head.weight", {5, 2})});
  const StateDictMapping mapping =
      map_state_dict({f32("tok.weight", {4, 2})}, file, {.exclude = {"head.weight"}},
                     checkpoint::HuggingFaceNames::find("gpt2"));
  EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
  EXPECT_THAT(source_names(mapping), ElementsAre("wte.weight"));
  EXPECT_THAT(mapping.copies, IsEmpty());
  EXPECT_THAT(mapping.unexpected,
              ElementsAre("lm_head.weight F32 [5, 2] (here head.weight), ignored"));
}

TEST(StateDictMappingTest, MapsRenamedTensorsByTheTableOfTheFolder) {
  const std::vector<TensorSpec> needed{f32("blocks.0.proj.weight", {2, 2}), f32("ln.weight")};
  const FakeFile file({f32("base.h.0.attn.c_proj.weight", {2, 2}), f32("base.ln_f.weight"),
                       f32("base.h.0.attn.masked_bias", {1})});
  const auto* const names = checkpoint::HuggingFaceNames::find("gpt2");
  const std::vector<config::KeyMapping> to_theirs{{"base.*", "transformer.*"}};
  const std::vector<config::KeyMapping> to_ours{
      {"base.h.*.attn.c_proj.weight", "blocks.*.proj.weight"},
      {"base.ln_f.*", "ln.*"},
      {"base.*", "transformer.*"}};
  for (const auto& rules : {to_theirs, to_ours}) {
    const StateDictMapping mapping = map_state_dict(needed, file, {.key_mapping = rules}, names);
    EXPECT_TRUE(mapping.status().ok()) << mapping.status().to_string();
    ASSERT_THAT(mapping.loads, SizeIs(2));
    EXPECT_TRUE(mapping.loads[0].is_transposed) << "square, so that the shape does not tell";
    EXPECT_FALSE(mapping.loads[1].is_transposed);
  }
}

// What the lines of a report are about: names of tensors, each as often as it is accounted for.
struct Accounts {
  std::vector<std::string> of_file, of_model;
  std::set<std::string> kinds;

  void add(const std::string& report) {
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream text(line);
      std::vector<std::string> words;
      for (std::string word; text >> word; words.push_back(word))
        std::erase_if(word, [](char c) { return c == ',' || c == '\''; });
      add_line(words);
    }
    std::ranges::sort(of_file);
    std::ranges::sort(of_model);
  }

 private:
  void add_line(const std::vector<std::string>& words) {
    const std::string& kind = words.at(0) == "problem" ? words.at(1) : words[0];
    if (words[0] == "loaded") {  // MODEL F32 [2], from FILE
      of_model.push_back(words.at(1));
      of_file.push_back(words.at(5));
    } else if (words[0] == "missing") {
      of_model.push_back(words.at(1));
    } else if (words[0] == "unexpected") {
      of_file.push_back(words.at(1));
    } else if (kind == "has") {  // FILE F32 [2], expected MODEL F32 [3]
      of_file.push_back(words.at(2));
      of_model.push_back(words.at(6));
    } else if (words.size() > 4 && words[4] == "are") {
      of_file.push_back(words[3]);  // OTHER and FILE are both mapped to MODEL
      kinds.insert("both");
      return;
    } else {
      return;  // a problem of a pattern, or of a tensor in another line
    }
    kinds.insert(kind);
  }
};

class RandomStateDicts {
 public:
  explicit RandomStateDicts(uint32_t seed) : rng_(seed) {}

  size_t below(size_t count) { return rng_() % count; }
  template <typename T>
  std::vector<T> some_of(const std::vector<T>& all, size_t one_in) {
    std::vector<T> chosen;
    for (const T& each : all)
      if (below(one_in) == 0) chosen.push_back(each);
    return chosen;
  }
  std::vector<TensorSpec> tensors(const std::vector<std::string>& prefixes) {
    std::vector<TensorSpec> specs;
    for (const std::string& prefix : prefixes)
      for (const char* const module : {"a.", "b.", "fc."})
        for (const char* const tensor : {"w", "b", "num_batches_tracked"})
          if (below(3) == 0)
            specs.push_back(
                {prefix + module + tensor,
                 std::vector{DType::kF32, DType::kF32, DType::kBF16, DType::kF64}[below(4)],
                 {below(6) == 0 ? 3 : 2}});
    std::ranges::shuffle(specs, rng_);
    return specs;
  }

 private:
  std::mt19937 rng_;
};

std::vector<std::string> sorted_names(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  std::ranges::sort(names);
  return names;
}

TEST(StateDictMappingTest, ReportsEachTensorOfBothSidesOnce) {
  const std::vector<config::KeyMapping> rules{{"module.a.*", "b.*"},
                                              {"module.*", "*"},
                                              {"*.w", "*.b"},
                                              {"*", "encoder.*"},
                                              {"none", "a.w"}};
  const std::vector<std::string> patterns{"fc.*", "*.b", "encoder.*", "a.w", "none"};
  std::set<std::string> kinds;
  size_t num_loadable = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    RandomStateDicts random(seed);
    const auto needed = random.tensors({"", "encoder."});
    const auto saved = random.tensors({"", "module.", "encoder."});
    const config::PretrainedConfig config{.key_mapping = random.some_of(rules, 4),
                                          .strict = random.below(2) == 0,
                                          .exclude = random.some_of(patterns, 4)};
    const StateDictMapping mapping = map_state_dict(needed, FakeFile(saved), config);
    if (mapping.status().ok()) ++num_loadable;
    Accounts accounts;
    accounts.add(mapping.report());
    ASSERT_EQ(accounts.of_file, sorted_names(saved)) << "seed " << seed << '\n' << mapping.report();
    ASSERT_EQ(accounts.of_model, sorted_names(needed)) << "seed " << seed << '\n'
                                                       << mapping.report();
    kinds.merge(accounts.kinds);
  }
  EXPECT_THAT(kinds, IsSupersetOf({"loaded", "missing", "unexpected", "has", "both"}));
  EXPECT_GT(num_loadable, 20u);
}

}  // namespace
}  // namespace stoker::pretrained
