// build_token_cache: encodes the text files of a dataset with its tokenizer, once, into files next
// to the index or in the folder data.NAME.cache.dir.
//
// Each text file is a document; the end token of the tokenizer follows its tokens, if there is one.
// The tokens are stored in parts, each a complete file for about 64 MiB of text, so that a start
// that was interrupted continues with the next part, and runs that share the folder use the parts
// of each other. A name identifies the tokenizer and the text files.
//
// Texts are encoded by several threads (document_encoder.h), in the sandbox of the request, if it has
// one; its results are checked. The files do not depend on the number of threads.
//
// Format:   little-endian, version 2: the tokens, of 2 bytes each if the vocabulary has at most
//           65,536 of them, else of 4; then a footer (token_cache.cc).
// Blocking: reads all files, and waits for another run that fills the folder.
// Errors:   those of FileReader, CacheLocation and TextTokenizer; kNoSpace. Complete parts remain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::cache {

// Bytes of a token.
inline uint64_t token_width(const tokenizer::Tokenizer& tokenizer) {
  return tokenizer.size() <= 65536 ? 2 : 4;
}

// Returns metadata with the files in `made`, their numbers of tokens in `numbers`, and the digest of
// the tokenizer in `names`.
// `part_bytes`: of the text of a file.
inline constexpr uint64_t kTokenPartBytes = uint64_t{64} << 20;
Result<files::IndexMetadata> build_token_cache(
    const DatasetRequest& request, const files::FileTable& files,
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const files::ScanProgress& progress,
    uint64_t part_bytes = kTokenPartBytes);

// Whether these are tokens of this tokenizer.
bool is_token_cache_of(const tokenizer::Tokenizer& tokenizer, const files::IndexMetadata& metadata);

// The bytes of tokens in each file of `made`. kCorrupt if that is not metadata of this function.
Result<std::vector<uint64_t>> token_cache_bytes(const files::IndexMetadata& metadata,
                                                uint64_t width);

}  // namespace stoker::data::cache
