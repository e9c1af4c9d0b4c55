// Task captioning: the loss over several padded captions, the search for captions, and the metrics.
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/caption_model.h"
#include "shared/task/caption_search.h"
#include "shared/task/task.h"

namespace stoker::task {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kEnd = 1, kPad = -100;
constexpr int64_t kWords = 5;  // start, end, unknown and two words

// The logits of a token depend on the token before it and on the brightness of the image.
class MarkovModel : public model::CaptionModel {
 public:
  explicit MarkovModel(at::Tensor table) : table_(std::move(table)) {}

  at::Tensor forward(const at::Tensor& input) override { return input; }
  at::Tensor encode(const at::Tensor& images) override {
    ++encodes;
    return images.flatten(1).select(1, 0);
  }
  at::Tensor decode(const at::Tensor& encoded, const at::Tensor& tokens) override {
    ++calls;
    const at::Tensor logits = table_.index_select(0, tokens.flatten());
    return logits.view({tokens.size(0), tokens.size(1), -1}) * encoded.view({-1, 1, 1});
  }

  int calls = 0, encodes = 0;

 private:
  const at::Tensor table_;  // [words, words]
};

// Greedily 3 4; the caption "4" has the best score. The most likely token after the start and after 3
// would be the start, which no caption has.
at::Tensor greedy_trap() {
  return at::tensor({2.f, -9.f, -9.f, 1.f,  .9f,    // start
                     0.f, 0.f,  0.f,  0.f,  0.f,    // end
                     0.f, 0.f,  0.f,  0.f,  0.f,    // unknown
                     2.f, .2f,  -9.f, -9.f, .3f,    // 3
                     0.f, 5.f,  -9.f, 1.f,  -9.f})  // 4
      .view({kWords, kWords});
}

double log_probability(const at::Tensor& table, int64_t from, int64_t to) {
  at::Tensor logits = table[from].clone();
  logits[0] = -std::numeric_limits<float>::infinity();
  return at::log_softmax(logits, 0)[to].item<double>();
}

// The best caption of all, by trying each of them.
struct Best {
  std::vector<int64_t> tokens;
  double score = -std::numeric_limits<double>::infinity();
};
void try_all(const at::Tensor& table, std::vector<int64_t>& tokens, double sum, int64_t max_length,
             Best& best) {
  const int64_t last = tokens.empty() ? 0 : tokens.back();
  const auto length = static_cast<int64_t>(tokens.size());
  const auto consider = [&](double total, int64_t count) {
    if (total / static_cast<double>(count) <= best.score) return;
    best = {tokens, total / static_cast<double>(count)};
  };
  if (length == max_length) return consider(sum, length);
  consider(sum + log_probability(table, last, kEnd), length + 1);
  for (int64_t next = 2; next < kWords; ++next) {
    tokens.push_back(next);
    try_all(table, tokens, sum + log_probability(table, last, next), max_length, best);
    tokens.pop_back();
  }
}

using Captions = std::vector<std::vector<int64_t>>;
Captions search(MarkovModel& model, const at::Tensor& images, const CaptionSearch& options) {
  return search_captions(model, model.encode(images), options);
}

TEST(CaptionSearch, IsGreedyWithOneBeam) {
  MarkovModel model(greedy_trap());
  const auto captions = search(model, at::full({1, 1}, 1.f), {.max_length = 4});
  EXPECT_THAT(captions, ElementsAre(ElementsAre(3, 4)));
}

TEST(CaptionSearch, FindsTheBestOfAllCaptionsWithEnoughBeams) {
  for (const float scale : {0.3f, 1.f, 2.f}) {
    const at::Tensor table = greedy_trap() * scale;
    Best best;
    std::vector<int64_t> tokens;
    try_all(table, tokens, 0, 3, best);
    MarkovModel model(table);
    const auto captions = search(model, at::full({1, 1}, 1.f), {.num_beams = 40, .max_length = 3});
    EXPECT_EQ(captions.front(), best.tokens) << scale;
  }
}

TEST(CaptionSearch, DoesNotDependOnTheOtherImages) {
  MarkovModel model(greedy_trap());
  for (const int beams : {1, 2, 3}) {
    const CaptionSearch options{.num_beams = beams, .max_length = 6};
    const at::Tensor images = at::tensor({1.f, .1f, -1.f, 3.f}).view({4, 1});
    const auto together = search(model, images, options);
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(search(model, images.narrow(0, i, 1), options).front(),
                together[static_cast<size_t>(i)])
          << beams << ' ' << i;
  }
}

TEST(CaptionSearch, EndsAtTheMaximumLengthAndWithTheLastCaption) {
  at::Tensor never = at::zeros({kWords, kWords});
  never.select(1, kEnd).fill_(-1e9f);
  never.select(1, 3).fill_(5.f);
  MarkovModel endless(never);
  EXPECT_THAT(search(endless, at::full({1, 1}, 1.f), {.num_beams = 2, .max_length = 3}),
              ElementsAre(ElementsAre(3, 3, 3)));
  at::Tensor always = at::zeros({kWords, kWords});
  always.select(1, kEnd).fill_(50.f);
  MarkovModel short_one(always);
  for (const int beams : {1, 3}) {
    short_one.calls = 0;
    EXPECT_THAT(search(short_one, at::full({2, 1}, 1.f), {.num_beams = beams, .max_length = 9}),
                ElementsAre(IsEmpty(), IsEmpty()));
    EXPECT_EQ(short_one.calls, 1) << beams << ": no other caption can be better";
  }
}

TEST(CaptionSearch, EndsAndServesTheOtherImagesWithNanScores) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  MarkovModel model(greedy_trap());
  const at::Tensor images = at::tensor({kNan, 1.f}).view({2, 1});
  for (const int beams : {1, 3}) {
    const CaptionSearch options{.num_beams = beams, .max_length = 4};
    const Captions captions = search(model, images, options);
    EXPECT_LE(captions[0].size(), 4U);
    EXPECT_EQ(captions[1], search(model, images.narrow(0, 1, 1), options).front()) << beams;
  }
}

class CaptioningTest : public ::testing::Test {
 protected:
  static std::vector<TensorSpec> sample() {
    return {{"input", DType::kF32, {1}},
            {"labels", DType::kI64, {2, 3}},
            {"references", DType::kU8, {32}}};
  }
  static std::unique_ptr<Task> task() {
    auto made = make_task({config::CaptioningTask{}}, nullptr, sample(), kWords);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *std::move(made);
  }
  static Batch batch(const std::vector<int64_t>& labels, const std::string& references) {
    at::Tensor text = at::zeros({1, 32}, at::kByte);
    for (size_t i = 0; i < references.size(); ++i)
      text[0][static_cast<int64_t>(i)] = static_cast<int64_t>(references[i]);
    return {at::full({1, 1}, 1.f), at::tensor(labels, at::kLong).view({1, 2, 3}), text};
  }
  // Mean over the transitions, with all words.
  static double cross_entropy(const std::vector<std::pair<int64_t, int64_t>>& transitions) {
    double sum = 0;
    for (const auto& [from, to] : transitions)
      sum -= at::log_softmax(greedy_trap()[from], 0)[to].item<double>();
    return sum / static_cast<double>(transitions.size());
  }
};

TEST_F(CaptioningTest, AveragesTheLossOverTheTokensOfAllCaptions) {
  MarkovModel model(greedy_trap());
  const auto result = task()->loss_and_metric(model, batch({3, 4, kEnd, 4, kEnd, kPad}, "a b\nb"));
  EXPECT_NEAR(result.loss.mean.item<double>(),
              cross_entropy({{0, 3}, {3, 4}, {4, kEnd}, {0, 4}, {4, kEnd}}), 1e-6);
  EXPECT_DOUBLE_EQ(result.metric_sum.item<double>(), 2)
      << "the ends; otherwise the start is likelier";
  EXPECT_EQ(result.maybe_device_count.item<int64_t>(), 5);
}

TEST_F(CaptioningTest, IgnoresCaptionsThatAreNotThere) {
  MarkovModel model(greedy_trap());
  const at::Tensor loss = task()->loss(model, batch({4, kEnd, kPad, kPad, kPad, kPad}, "b"));
  EXPECT_NEAR(loss.item<double>(), cross_entropy({{0, 4}, {4, kEnd}}), 1e-6);
}

TEST_F(CaptioningTest, EvaluatesGeneratedCaptions) {
  MarkovModel model(greedy_trap());
  const auto evaluation =
      task()->start_evaluation({.captions = 1, .class_names = {"<s>", "</s>", "<unk>", "a", "b"}});
  evaluation->add(model, batch({3, 4, kEnd, 4, kEnd, kPad}, "a B!\nb"));
  evaluation->add(model, batch({4, kEnd, kPad, kPad, kPad, kPad}, "b"));
  const eval_metrics::EvalReport report = evaluation->report();
  const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
  EXPECT_NEAR(metrics.at("loss"),
              cross_entropy({{0, 3}, {3, 4}, {4, kEnd}, {0, 4}, {4, kEnd}, {0, 4}, {4, kEnd}}),
              1e-6);
  EXPECT_DOUBLE_EQ(metrics.at("exact_match"), 0.5);
  EXPECT_NEAR(metrics.at("bleu_1"), 0.75, 1e-6);
  EXPECT_TRUE(metrics.contains("cider_d"));
  ASSERT_EQ(report.captions.size(), 1U);
  EXPECT_EQ(report.captions[0].caption, "a b");
  EXPECT_TRUE(report.captions[0].is_exact) << "by words";
  EXPECT_EQ(model.encodes, 2) << "batches";
  EXPECT_THAT(report.captions[0].references, ElementsAre("a B!", "b"));
}

TEST_F(CaptioningTest, NeedsImagesLabelsAndReferences) {
  const auto made =
      make_task({config::CaptioningTask{}}, nullptr, {sample()[0], sample()[1]}, kWords);
  EXPECT_EQ(made.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(made.status().message(), HasSubstr("needs samples with `references`"));
}

}  // namespace
}  // namespace stoker::task
