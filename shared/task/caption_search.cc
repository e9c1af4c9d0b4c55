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
  Tokens tokens;      // without the start
  double score = 0;   // sum of the log probabilities; mean if the caption is complete
  size_t parent = 0;  // the beam of the image that it continues
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
      Beam beam{.tokens = beams_[each.beam].tokens, .score = each.score, .parent = each.beam};
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

at::Tensor index_tensor(const std::vector<int64_t>& values) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

// The beams that are continued, those of all images in one batch.
class Rows {
 public:
  explicit Rows(const at::Tensor& encoded)
      : encoded_(encoded), first_rows_(static_cast<size_t>(encoded.size(0))) {
    for (size_t image = 0; image < first_rows_.size(); ++image)
      first_rows_[image] = static_cast<int64_t>(image);
  }

  // The beams of all searches that are not done; false: there is none.
  bool advance(const std::vector<ImageSearch>& searches, int64_t start) {
    std::vector<int64_t> parents;
    Tokens tokens;
    for (size_t image = 0; image < searches.size(); ++image) {
      if (searches[image].is_done()) continue;
      const int64_t first = std::exchange(first_rows_[image], static_cast<int64_t>(parents.size()));
      for (const Beam& beam : searches[image].beams()) {
        parents.push_back(first + static_cast<int64_t>(beam.parent));
        tokens.push_back(start);
        tokens.insert(tokens.end(), beam.tokens.begin(), beam.tokens.end());
      }
    }
    if (parents.empty()) return false;
    select(parents);
    tokens_ = index_tensor(tokens).view({static_cast<int64_t>(parents.size()), -1});
    return true;
  }

  at::Tensor next_logits(model::CaptionModel& model) {
    return model.decode_last(encoded_, tokens_.to(encoded_.device()), cache_).to(at::kFloat);
  }

 private:
  void select(const std::vector<int64_t>& parents) {
    bool is_same = static_cast<int64_t>(parents.size()) == encoded_.size(0);
    for (size_t row = 0; row < parents.size() && is_same; ++row)
      is_same = parents[row] == static_cast<int64_t>(row);
    if (is_same) return;
    const at::Tensor rows = index_tensor(parents).to(encoded_.device());
    encoded_ = encoded_.index_select(0, rows);
    cache_.select_rows(rows);
  }

  at::Tensor encoded_;  // of the image of each row
  at::Tensor tokens_;   // I64 [rows, time]
  model::KeyValueCache cache_;
  std::vector<int64_t> first_rows_;  // of each image
};

// NaN, of a model that diverged, has no place in an order.
double score_of(float log_probability) {
  return std::isnan(log_probability) ? -std::numeric_limits<double>::infinity()
                                     : static_cast<double>(log_probability);
}

}  // namespace

std::vector<std::vector<int64_t>> search_captions(model::CaptionModel& model,
                                                  const at::Tensor& encoded,
                                                  const CaptionSearch& search) {
  const at::NoGradGuard no_grad;
  std::vector<ImageSearch> searches(static_cast<size_t>(encoded.size(0)), ImageSearch(search));
  Rows rows(encoded);
  for (int64_t time = 1; time <= search.max_length && rows.advance(searches, search.start);
       ++time) {
    const at::Tensor logits = rows.next_logits(model).clone();
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
