// CaptionMetrics: BLEU-1 to 4 and CIDEr-D of captions, as pycocoevalcap computes them, and the
// fraction of captions that equal one of their references.
//
// BLEU (Papineni et al., 2002) is of the whole corpus, with the closest reference length. CIDEr-D
// (Vedantam et al., 2015) takes document frequencies from the references of the dataset, so that it
// is 0 for a dataset of one image, and compares lengths with sigma 6.
//
// Threads: one.
// Memory:  the words of all captions and references.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/eval_metrics/eval_metrics.h"

namespace stoker::eval_metrics {

using Words = std::vector<std::string>;

class CaptionMetrics {
 public:
  // `references`: at least one. Returns whether the words of the caption equal those of one.
  bool add(std::string_view caption, const std::vector<std::string>& references);
  size_t size() const { return captions_.size(); }
  // bleu_1 to bleu_4, cider_d, exact_match; NaN without captions.
  MetricValues metrics() const;

 private:
  struct Caption {
    Words words;
    std::vector<Words> references;
  };
  std::vector<double> bleu() const;
  double cider_d() const;

  std::vector<Caption> captions_;
  uint64_t exact_ = 0;
};

}  // namespace stoker::eval_metrics
