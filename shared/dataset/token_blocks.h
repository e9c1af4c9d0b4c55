// TokenBlocks: the texts of records as one stream of bytes, cut into samples of `block_size` + 1 tokens.
//
// Each text is followed by one byte 0, which no text has a use for: the end that a model can learn,
// and what keeps a text from running into the next. Windows overlap by one byte, as those of format
// `text`.
//
// Errors: kInvalidArgument where the part that the set takes is shorter than one sample.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/records.h"

namespace stoker::dataset {

Result<std::unique_ptr<Dataset>> make_token_blocks(const DatasetRequest& request,
                                                   std::string fingerprint,
                                                   std::unique_ptr<RecordReader> records);

}  // namespace stoker::dataset
