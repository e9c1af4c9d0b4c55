// Format `text`: the files are concatenated to one stream. Tokens are bytes or, with a tokenizer,
// those of the token cache, in which the end token follows each file.
#include <utility>

#include "shared/data/cache/token_cache.h"
#include "shared/data/dataset_files.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/byte_stream.h"
#include "shared/data/format/format.h"
#include "shared/data/format/tokens_dataset.h"
#include "shared/data/sample_range.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::format {
namespace {

// Null without a tokenizer.
Result<std::shared_ptr<const tokenizer::Tokenizer>> read_tokenizer(const DatasetRequest& request) {
  const config::TokenizerConfig* const config = request.config.text_tokenizer();
  if (config == nullptr) return std::shared_ptr<const tokenizer::Tokenizer>();
  auto tokenizer = tokenizer::Tokenizer::read(config->path);
  if (!tokenizer) return tokenizer.status().with_context(request.key("tokenizer.path"));
  return tokenizer;
}

Result<std::string> text_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  STOKER_ASSIGN_OR_RETURN(const auto tokenizer, read_tokenizer(request));
  return "format=text " + split.to_text() + " block_size=" + std::to_string(block_size) +
         (tokenizer ? " tokenizer=" + tokenizer->digest() : "");
}

Result<files::FileTable> scan_text(const DatasetRequest& request,
                                   const files::ScanProgress& progress) {
  return scan_source(request, request.config.glob(), progress);
}

Result<files::IndexMetadata> build_text_metadata(const DatasetRequest& request,
                                                 const files::FileTable& files,
                                                 const files::ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_texts(request, files, progress));
  STOKER_ASSIGN_OR_RETURN(auto tokenizer, read_tokenizer(request));
  if (!tokenizer) return no_metadata(request, files, progress);
  return cache::build_token_cache(request, files, std::move(tokenizer), progress);
}

// The tokenizer can have changed after the settings of the index were read.
Result<bool> is_text_metadata_current(const DatasetRequest& request,
                                      const files::IndexMetadata& metadata) {
  STOKER_ASSIGN_OR_RETURN(const auto tokenizer, read_tokenizer(request));
  return !tokenizer || cache::is_token_cache_of(*tokenizer, metadata);
}

Result<std::unique_ptr<Dataset>> open_tokenized(const DatasetRequest& request, files::Index index,
                                                const tokenizer::Tokenizer& tokenizer) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  if (!cache::is_token_cache_of(tokenizer, index.metadata))
    return Status(StatusCode::kMismatch,
                  request.key("tokenizer.path") +
                      ": the file changed after its text was tokenized; restart to tokenize again");
  TokenStream stream{.width = cache::token_width(tokenizer), .classes = tokenizer.size()};
  auto bytes = cache::token_cache_bytes(index.metadata, stream.width);
  if (!bytes) return bytes.status().with_context("data." + request.name);
  stream.bytes = *std::move(bytes);
  uint64_t length = 0;
  for (const uint64_t part : stream.bytes) length += part / stream.width;
  const SampleRange range = split.of_count(length);
  if (range.size() < block_size + 1) return too_short(request, range.size(), "tokens");
  std::string fingerprint = index.fingerprint();
  stream.files = std::move(index.metadata.made);
  return make_tokens_dataset(std::move(fingerprint), std::move(stream), range, block_size);
}

Result<std::unique_ptr<Dataset>> open_text(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(const auto tokenizer, read_tokenizer(request));
  if (tokenizer) return open_tokenized(request, std::move(index), *tokenizer);
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const uint64_t length, ByteStream::total_length(index.files));
  const SampleRange range = split.of_count(length);
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  if (range.size() < block_size + 1) return too_short(request, range.size(), "bytes");
  std::string fingerprint = index.fingerprint();
  return make_tokens_dataset(std::move(fingerprint), whole_files(std::move(index.files), 1, 256),
                             range, block_size);
}

}  // namespace

const DatasetFormatOps& text_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "text",
                                               .fingerprint_text = text_fingerprint_text,
                                               .scan = scan_text,
                                               .build_metadata = build_text_metadata,
                                               .is_current = is_text_metadata_current,
                                               .open = open_text,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
