#include "shared/eval_metrics/caption_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "shared/eval_metrics/ptb_tokenizer.h"

namespace stoker::eval_metrics {
namespace {

constexpr size_t kMaxOrder = 4;
constexpr double kSmall = 1e-9, kTiny = 1e-15;  // pycocoevalcap's
constexpr double kSigma = 6;
constexpr double kCiderScale = 10;

// Counts of the n-grams of one order, whose words are joined by spaces.
using Counts = std::map<std::string, uint64_t>;

Counts count_ngrams(const Words& words, size_t order) {
  Counts counts;
  for (size_t first = 0; first + order <= words.size(); ++first) {
    std::string ngram = words[first];
    for (size_t i = 1; i < order; ++i) ngram += ' ' + words[first + i];
    ++counts[ngram];
  }
  return counts;
}

uint64_t num_ngrams(const Words& words, size_t order) {
  return words.size() >= order ? words.size() - order + 1 : 0;
}

size_t closest_length(const Words& words, const std::vector<Words>& references) {
  const auto distance = [&words](size_t length) {
    return length > words.size() ? length - words.size() : words.size() - length;
  };
  size_t closest = references.front().size();
  for (const Words& reference : references)
    closest = std::min(closest, reference.size(), [&](size_t a, size_t b) {
      return std::pair(distance(a), a) < std::pair(distance(b), b);
    });
  return closest;
}

// ---- CIDEr-D

using DocumentFrequencies = std::map<std::string, double>;

// TF-IDF weights of the n-grams of one order.
struct Weights {
  std::map<std::string, double> values;
  double norm = 0;
};

// `log_documents`: logarithm of the number of documents.
Weights weights_of(const Words& words, size_t order, const DocumentFrequencies& frequencies,
                   double log_documents) {
  Weights weights;
  for (const auto& [ngram, count] : count_ngrams(words, order)) {
    const auto found = frequencies.find(ngram);
    const double frequency = found == frequencies.end() ? 1 : std::max(1.0, found->second);
    const double weight = static_cast<double>(count) * (log_documents - std::log(frequency));
    weights.values[ngram] = weight;
    weights.norm += weight * weight;
  }
  weights.norm = std::sqrt(weights.norm);
  return weights;
}

double similarity(const Weights& caption, const Weights& reference) {
  double sum = 0;
  for (const auto& [ngram, weight] : caption.values) {
    const auto found = reference.values.find(ngram);
    if (found != reference.values.end()) sum += std::min(weight, found->second) * found->second;
  }
  const double norms = caption.norm * reference.norm;
  return norms == 0 ? sum : sum / norms;
}

// pycocoevalcap's length is the number of bigrams.
double length_penalty(const Words& caption, const Words& reference) {
  const double delta =
      static_cast<double>(num_ngrams(caption, 2)) - static_cast<double>(num_ngrams(reference, 2));
  return std::exp(-delta * delta / (2 * kSigma * kSigma));
}

}  // namespace

bool CaptionMetrics::add(std::string_view caption, const std::vector<std::string>& references) {
  Caption& added = captions_.emplace_back();
  added.words = ptb_words(caption);
  for (const std::string& reference : references) added.references.push_back(ptb_words(reference));
  const bool is_exact = std::ranges::find(added.references, added.words) != added.references.end();
  if (is_exact) ++exact_;
  return is_exact;
}

std::vector<double> CaptionMetrics::bleu() const {
  std::array<double, kMaxOrder> guessed{}, correct{};
  double length = 0, reference_length = 0;
  for (const Caption& caption : captions_) {
    length += static_cast<double>(caption.words.size());
    reference_length += static_cast<double>(closest_length(caption.words, caption.references));
    for (size_t i = 0; i < kMaxOrder; ++i) {
      guessed[i] += static_cast<double>(num_ngrams(caption.words, i + 1));
      Counts most;
      for (const Words& reference : caption.references)
        for (const auto& [ngram, count] : count_ngrams(reference, i + 1))
          most[ngram] = std::max(most[ngram], count);
      for (const auto& [ngram, count] : count_ngrams(caption.words, i + 1))
        if (const auto found = most.find(ngram); found != most.end())
          correct[i] += static_cast<double>(std::min(count, found->second));
    }
  }
  const double ratio = (length + kTiny) / (reference_length + kSmall);
  const double brevity = ratio < 1 ? std::exp(1 - 1 / ratio) : 1;
  std::vector<double> scores;
  double product = 1;
  for (size_t i = 0; i < kMaxOrder; ++i) {
    product *= (correct[i] + kTiny) / (guessed[i] + kSmall);
    scores.push_back(std::pow(product, 1.0 / static_cast<double>(i + 1)) * brevity);
  }
  return scores;
}

double CaptionMetrics::cider_d() const {
  std::array<DocumentFrequencies, kMaxOrder> frequencies;
  for (const Caption& caption : captions_)
    for (size_t i = 0; i < kMaxOrder; ++i) {
      std::set<std::string> ngrams;
      for (const Words& reference : caption.references)
        for (const auto& [ngram, count] : count_ngrams(reference, i + 1)) ngrams.insert(ngram);
      for (const std::string& ngram : ngrams) ++frequencies[i][ngram];
    }
  const double log_documents = std::log(static_cast<double>(captions_.size()));
  double sum = 0;
  for (const Caption& caption : captions_) {
    double of_image = 0;
    for (size_t i = 0; i < kMaxOrder; ++i) {
      const Weights weights = weights_of(caption.words, i + 1, frequencies[i], log_documents);
      for (const Words& reference : caption.references)
        of_image +=
            similarity(weights, weights_of(reference, i + 1, frequencies[i], log_documents)) *
            length_penalty(caption.words, reference);
    }
    sum += of_image / kMaxOrder / static_cast<double>(caption.references.size()) * kCiderScale;
  }
  return sum / static_cast<double>(captions_.size());
}

MetricValues CaptionMetrics::metrics() const {
  const bool any = !captions_.empty();
  const std::vector<double> scores =
      any ? bleu() : std::vector<double>(kMaxOrder, std::numeric_limits<double>::quiet_NaN());
  MetricValues values;
  for (size_t i = 0; i < scores.size(); ++i)
    values.emplace_back("bleu_" + std::to_string(i + 1), scores[i]);
  values.emplace_back("cider_d", any ? cider_d() : std::numeric_limits<double>::quiet_NaN());
  values.emplace_back("exact_match", any ? static_cast<double>(exact_) / static_cast<double>(size())
                                         : std::numeric_limits<double>::quiet_NaN());
  return values;
}

}  // namespace stoker::eval_metrics
