// Histograms of parameters and gradients during training, and the callback for the first batch.
#include <gmock/gmock.h>

#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using testing::ElementsAre;

class HistogramsTest : public TrainerTest {};

std::vector<std::string> names_of(const std::vector<metrics::NamedSummary>& summaries) {
  std::vector<std::string> names;
  for (const auto& one : summaries) names.push_back(one.name);
  return names;
}

TEST_F(HistogramsTest, RecordsParametersAndGradientsAtInterval) {
  auto config = small_config(7);
  mlp_of(config).hidden_sizes = {};
  config.metrics.histogram_every_steps = 3;
  Session run(config, root_);
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.histograms_.size(), 2u);
  EXPECT_EQ(run.histograms_[0].first, 3u);
  EXPECT_EQ(run.histograms_[1].first, 6u);
  const auto& summaries = run.histograms_[1].second;
  EXPECT_THAT(names_of(summaries), ElementsAre("gradients/0.weight", "gradients/0.bias",
                                               "parameters/0.weight", "parameters/0.bias"));
  for (const auto& [name, summary] : summaries) {
    const auto tensor = run.state_->model().named_parameters()[name.substr(name.find('/') + 1)];
    EXPECT_EQ(summary.count, static_cast<uint64_t>(tensor.numel())) << name;
    double in_buckets = 0;
    for (const auto& bucket : summary.buckets) in_buckets += bucket.count;
    EXPECT_EQ(in_buckets, static_cast<double>(tensor.numel())) << name;
    EXPECT_GT(summary.norm, 0) << name;
  }
}

TEST_F(HistogramsTest, DoesNotChangeTrainedWeights) {
  auto config = small_config(9);
  config.train.gradient_accumulation_steps = 2;
  Session plain(config, fresh());
  ASSERT_TRUE(plain.train().ok());
  EXPECT_TRUE(plain.histograms_.empty()) << "none by default";
  config.metrics.histogram_every_steps = 1;
  Session watched(config, fresh());
  ASSERT_TRUE(watched.train().ok());
  EXPECT_EQ(watched.histograms_.size(), 9u);
  EXPECT_EQ(watched.model_sha256(), plain.model_sha256());
}

TEST_F(HistogramsTest, ShowsFirstBatchOnNewRunOnly) {
  auto config = small_config(6);
  config.train.gradient_accumulation_steps = 2;
  {
    Session run(config, root_);
    ASSERT_TRUE(run.train().ok());
    EXPECT_THAT(run.first_batches_, ElementsAre(0));
  }
  config.train.max_steps = 8;
  Session again(config, root_);
  ASSERT_TRUE(again.train().ok());
  EXPECT_EQ(again.state_->step, 8u);
  EXPECT_THAT(again.first_batches_, ElementsAre());
}

}  // namespace
}  // namespace stoker::train
