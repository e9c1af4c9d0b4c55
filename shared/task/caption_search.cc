#include "shared/task/caption_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

#include "shared/task/host_values.h"

namespace stoker::task {
namespace {

using Tokens = std::vector<int64_t>;

struct Beam {
  Tokens tokens;     // without the start
  double score = 0;  // sum of the log probabilities; mean if the caption is complete
};

// A beam with one more token.
struct Candidate {
  double score = 0;
  size_t beam = 0;
  int64_t token = 0;
};

class ImageSearch {
 public:
  explicit ImageSearch(const CaptionSearch& options) : options_(options), beams_(1) {}

  bool is_done() const { return is_done_; }
  const std::vector<Beam>& beams() const { return beams_; }

  // `candidates`: the most likely tokens of each beam.
  void advance(std::vector<Candidate> candidates) {
    std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
      return std::tuple(-a.score, a.beam, a.token) < std::tuple(-b.score, b.beam, b.token);
    });
    const auto width = static_cast<size_t>(options_.num_beams);
    std::vector<Beam> next;
    const size_t length = beams_.front().tokens.size() + 1;
    for (size_t rank = 0; rank < candidates.size() && next.size() < width; ++rank) {
      const Candidate& each = candidates[rank];
      // The others fill up the beams; as captions they would be too unlikely.
      if (each.token == options_.end && rank >= width) continue;
      Beam beam{.tokens = beams_[each.beam].tokens, .score = each.score};
      if (each.token == options_.end) {
        finish(std::move(beam), length);
        continue;
      }
      beam.tokens.push_back(each.token);
      next.push_back(std::move(beam));
    }
    if (next.empty()) {
      is_done_ = true;
      return;
    }
    beams_ = std::move(next);
    const double best_possible = beams_.front().score / static_cast<double>(options_.max_length);
    is_done_ = best_ && (width == 1 || best_->score >= best_possible);
  }

  Tokens best() {
    if (!is_done_)
      for (Beam& beam : beams_) {
        const size_t length = beam.tokens.size();
        finish(std::move(beam), length);
      }
    return best_ ? best_->tokens : Tokens();
  }

 private:
  void finish(Beam beam, size_t length) {
    beam.score /= static_cast<double>(std::max<size_t>(length, 1));
    if (!best_ || beam.score > best_->score) best_ = std::move(beam);
  }

  const CaptionSearch& options_;
  std::vector<Beam> beams_;   // of one length
  std::optional<Beam> best_;  // complete
  bool is_done_ = false;
};

// The beams that are continued: of which image, and their tokens.
struct Rows {
  std::vector<int64_t> images;
  at::Tensor tokens;  // I64 [rows, time]
};

Rows rows_of(const std::vector<ImageSearch>& searches, int64_t time, int64_t start) {
  Rows rows;
  Tokens tokens;
  for (size_t image = 0; image < searches.size(); ++image) {
    if (searches[image].is_done()) continue;
    for (const Beam& beam : searches[image].beams()) {
      rows.images.push_back(static_cast<int64_t>(image));
      tokens.push_back(start);
      tokens.insert(tokens.end(), beam.tokens.begin(), beam.tokens.end());
    }
  }
  rows.tokens = at::empty({static_cast<int64_t>(rows.images.size()), time}, at::kLong);
  std::ranges::copy(tokens, rows.tokens.mutable_data_ptr<int64_t>());
  return rows;
}

// NaN, of a model that diverged, has no place in an order.
double score_of(float log_probability) {
  return std::isnan(log_probability) ? -std::numeric_limits<double>::infinity()
                                     : static_cast<double>(log_probability);
}

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

}  // namespace

std::vector<std::vector<int64_t>> search_captions(model::CaptionModel& model,
                                                  const at::Tensor& encoded,
                                                  const CaptionSearch& search) {
  const at::NoGradGuard no_grad;
  const c10::Device device = encoded.device();
  std::vector<ImageSearch> searches(static_cast<size_t>(encoded.size(0)), ImageSearch(search));
  for (int64_t time = 1; time <= search.max_length; ++time) {
    const Rows rows = rows_of(searches, time, search.start);
    if (rows.images.empty()) break;
    const at::Tensor memory = encoded.index_select(0, index_tensor(rows.images).to(device));
    const at::Tensor logits =
        model.decode_last(memory, rows.tokens.to(device)).to(at::kFloat).clone();
    logits.select(1, search.start).fill_(-std::numeric_limits<float>::infinity());
    const int64_t count = std::min<int64_t>(2 * search.num_beams, logits.size(1));
    const auto [scores, tokens] = at::topk(at::log_softmax(logits, 1), count);
    const HostValues<float> score_values(scores);
    const HostValues<int64_t> token_values(tokens);
    size_t row = 0;
    for (ImageSearch& each : searches) {
      if (each.is_done()) continue;
      std::vector<Candidate> candidates;
      for (size_t beam = 0; beam < each.beams().size(); ++beam, ++row)
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
          const size_t at = row * static_cast<size_t>(count) + i;
          candidates.push_back(
              {.score = each.beams()[beam].score + score_of(score_values.span()[at]),
               .beam = beam,
               .token = token_values.span()[at]});
        }
      each.advance(std::move(candidates));
    }
  }
  std::vector<Tokens> captions;
  for (ImageSearch& each : searches) captions.push_back(each.best());
  return captions;
}

}  // namespace stoker::task
