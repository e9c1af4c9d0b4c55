// with_packing: packs the documents of a sequence dataset into samples (sequence.packing).
//
// A sample consists of whole documents, one after the other, up to the maximum length of a document:
//
//   `tokens` [max_length]            as in the documents, padded with 0
//   `position_ids` I32 [max_length]  position of each token in its document; 0 for padding
//   `labels` I64 [max_length]        if the documents have a label per token; -100 for padding
//
// Best-fit decreasing: from the longest document to the shortest, each is added to the sample with
// the least space left that it fits into. This depends on the lengths only, so all processes that
// open the same index have the same samples. Documents within a sample, and samples by their first
// document, are in the order of the data. Documents of fewer than two tokens predict nothing and are
// omitted. Uses 4 bytes per document and 8 per sample, while packing three times as much.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming the key: no document has two tokens, or there are too many. An
//          error of a document is one of its sample.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"

namespace stoker::data::pipeline {

// The documents of each sample.
struct Packing {
  std::vector<uint32_t> documents;  // of the first sample, then of the second, …
  std::vector<uint64_t> ends;       // of each sample in `documents`

  std::span<const uint32_t> documents_of(uint64_t sample) const {
    const uint64_t begin = sample == 0 ? 0 : ends[sample - 1];
    return std::span(documents).subspan(begin, ends[sample] - begin);
  }
};
// `lengths`: of each document, at most `max_length`.
Packing pack(std::span<const uint32_t> lengths, uint32_t max_length);

enum class LogsPacking { kNo, kYes };

// `documents`: sequences of tokens, without labels or with one per token.
Result<std::unique_ptr<Dataset>> with_packing(const DatasetRequest& request,
                                              std::unique_ptr<Dataset> documents, LogsPacking logs);

}  // namespace stoker::data::pipeline
