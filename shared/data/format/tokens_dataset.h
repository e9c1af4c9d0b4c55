// make_tokens_dataset: a stream of little-endian token ids in files, or of the bytes of texts, cut into
// blocks.
//
// Threads: a function of its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/files/file_table.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {

struct TokenStream {
  files::FileTable files = files::FileTable();
  std::vector<uint64_t> bytes;  // at the start of each file
  uint64_t width = 2;           // bytes of a token: 1 (text), 2 or 4
  uint64_t classes = 0;         // size of the vocabulary; 0: the files do not contain it
};
TokenStream whole_files(files::FileTable files, uint64_t width, uint64_t classes);

// The tokens of `range`, at least block_size + 1.
std::unique_ptr<Dataset> make_tokens_dataset(std::string fingerprint, TokenStream tokens,
                                             SampleRange range, uint64_t block_size);

}  // namespace stoker::data::format
