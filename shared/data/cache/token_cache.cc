#include "shared/data/cache/token_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shared/base/cgroup.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/cache/document_encoder.h"
#include "shared/data/files/derived_file.h"
#include "shared/data/sandbox.h"

namespace stoker::data::cache {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxParts = 1024;
constexpr size_t kPartDigits = 4;

constexpr std::array<char, 8> kPartMagic{'s', 't', 'k', 'T', 'O', 'K', 'E', '\n'};
constexpr uint32_t kPartVersion = 2;

// The last bytes of a part.
struct PartFooter {
  std::array<char, 8> magic = kPartMagic;
  uint32_t version = kPartVersion;
  uint32_t crc = 0;  // CRC-32C of the tokens
  uint64_t width = 0;
  uint64_t num_tokens = 0;
  TextPosition begin, end;
  std::array<char, 64> identity{};  // hex SHA-256 of everything that determines the tokens
};
static_assert(sizeof(PartFooter) == 144 && std::is_trivially_copyable_v<PartFooter>);

// Encodes in this process.
class LocalTokenizer final : public TextTokenizer {
 public:
  explicit LocalTokenizer(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : encoder_(std::move(tokenizer)) {}

  Result<Part> tokenize(std::string_view text, bool begins_section, bool ends_text) override {
    Part part;
    STOKER_ASSIGN_OR_RETURN(
        const auto encoded,
        encoder_.encode_part(text, {.begins_section = begins_section, .ends_text = ends_text},
                             part.ids));
    part.bytes = encoded.bytes;
    part.begins_section = encoded.begins_section;
    return part;
  }

 private:
  tokenizer::TextEncoder encoder_;
};

class TokenCacheBuilder {
 public:
  TokenCacheBuilder(const DatasetRequest& request, const files::FileTable& files,
                    std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                    const files::ScanProgress& progress, uint64_t part_bytes)
      : request_(request),
        files_(files),
        tokenizer_(std::move(tokenizer)),
        width_(token_width(*tokenizer_)),
        progress_(progress),
        encoder_(files, *tokenizer_, make_text_tokenizer(), max_threads()) {
    total_bytes_ = files.total_bytes();
    part_bytes_ = std::max(part_bytes, total_bytes_ / kMaxParts);
    Sha256 hash;
    hash.update("tokens " + std::to_string(kPartVersion) + ' ' + tokenizer_->digest() + '\n');
    files.add_to(hash);
    identity_ = hash.finish_hex();
    metadata_.names = {tokenizer_->digest()};
  }

  Result<files::IndexMetadata> build() {
    TextPosition at = encoder_.skip_empty({});
    for (uint64_t part = 0; at.document < files_.size(); ++part) {
      STOKER_ASSIGN_OR_RETURN(at, add_part(part, at));
    }
    log_result();
    if (metadata_.made.size() == 0)
      return Status(StatusCode::kCorrupt,
                    request_.key("path") + ": " + request_.config.path() + ": there is no text");
    return std::move(metadata_);
  }

 private:
  CacheLocation location(uint64_t part) const {
    std::string number = std::to_string(part);
    number.insert(0, kPartDigits - std::min(kPartDigits, number.size()), '0');
    const auto& cache = request_.as<config::TextDataset>().token_cache;
    // Next to the index, too, the name has the hash: another tokenizer has other parts.
    return CacheLocation(request_, "tokens-" + number, identity_,
                         cache && cache->dir ? "tokens" : identity_.substr(0, 24) + ".tokens",
                         cache ? cache->dir : std::nullopt);
  }

  // Uses the part if it is there, or makes it. Returns the start of the next one.
  Result<TextPosition> add_part(uint64_t part, const TextPosition& begin) {
    const CacheLocation place = location(part);
    // A complete part needs neither the lock nor permission to write.
    auto reused = open_part(place, begin);
    if (!reused.ok() && !is_locked_) {
      STOKER_ASSIGN_OR_RETURN(lock_, place.lock(progress_));
      is_locked_ = true;
      reused = open_part(place, begin);
    }
    if (reused.ok()) {
      ++num_reused_;
      return reused;
    }
    if (reused.status().code() == StatusCode::kCorrupt) {
      log_warn("token cache rebuilt", {{"reason", reused.status().message()}});
      STOKER_RETURN_IF_ERROR(place.remove());
    } else if (reused.status().code() != StatusCode::kNotFound) {
      return reused;
    }
    const uint64_t expected = std::min(part_bytes_, total_bytes_ - num_bytes_) / 3 * width_;
    STOKER_RETURN_IF_ERROR(files::check_free_space(place.path(), expected, "the tokens of the text",
                                                   "leave " + request_.key("tokenizer") + " away")
                               .with_context(place.key()));
    const Status created =
        place.create(SharedFolder::Access::kRead,
                     [&](int fd, const std::string& name) { return write_part(begin, fd, name); });
    if (!created.ok() && created.code() != StatusCode::kAlreadyExists) return created;
    return open_part(place, begin);
  }

  Status wrong(const std::string& path) const {
    return Status(StatusCode::kCorrupt, path + ": not a complete part of the tokens of this text");
  }

  // Adds the part to the metadata. kNotFound, kCorrupt.
  Result<TextPosition> open_part(const CacheLocation& place, const TextPosition& begin) {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, place.open(SharedFolder::Access::kRead));
    const std::string& path = place.path();
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
    const files::FileStamp stamp = files::stamp_of(info);
    PartFooter footer;
    if (!S_ISREG(info.st_mode) || stamp.size < sizeof footer) return wrong(path);
    const uint64_t bytes = stamp.size - sizeof footer;
    STOKER_RETURN_IF_ERROR(
        read_exactly(fd.get(), bytes, std::as_writable_bytes(std::span(&footer, 1)), path));
    const TextPosition& end = footer.end;
    const bool is_position =
        end > begin && end.begins_section <= 1 &&
        (end.document == files_.size()
             ? end.offset == 0
             : end.document < files_.size() && end.offset < files_.stamp(end.document).size);
    if (footer.magic != kPartMagic || footer.version != kPartVersion || footer.width != width_ ||
        footer.begin != begin || !std::ranges::equal(footer.identity, identity_) || !is_position ||
        bytes % width_ != 0 || footer.num_tokens != bytes / width_)
      return wrong(path);
    STOKER_RETURN_IF_ERROR(check_tokens(fd.get(), bytes, footer.crc, path));
    metadata_.made.add(path, stamp);
    metadata_.numbers.push_back(footer.num_tokens);
    for (uint64_t document = begin.document; document < end.document; ++document)
      num_bytes_ += files_.stamp(document).size;
    num_bytes_ += end.offset - begin.offset;
    num_encoded_ = num_bytes_;
    report();
    return end;
  }

  void report() const { progress_(num_encoded_ >> 20, "MiB of text tokenized"); }

  Status check_tokens(int fd, uint64_t bytes, uint32_t expected, const std::string& path) const {
    std::vector<std::byte> buffer(std::min(bytes, kBufferBytes));
    uint32_t crc = 0;
    for (uint64_t at = 0; at < bytes; at += buffer.size()) {
      const std::span<std::byte> part =
          std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes - at));
      STOKER_RETURN_IF_ERROR(read_exactly(fd, at, part, path));
      crc = crc32c(part, crc);
    }
    return crc == expected ? Status() : wrong(path);
  }

  Status write_part(const TextPosition& begin, int fd, const std::string& path) {
    PartFooter footer{.width = width_, .begin = begin};
    std::ranges::copy(identity_, footer.identity.begin());
    TextPosition at = begin;
    for (uint64_t bytes = 0; bytes < part_bytes_ && at.document < files_.size();) {
      STOKER_ASSIGN_OR_RETURN(const DocumentEncoder::Tokens tokens,
                              encoder_.next(at, [this] { report(); }));
      bytes += tokens.bytes;
      at = tokens.end;
      const std::vector<std::byte> packed = pack(tokens.ids);
      STOKER_RETURN_IF_ERROR(default_file_system().write(fd, packed, path));
      footer.crc = crc32c(packed, footer.crc);
      footer.num_tokens += tokens.ids.size();
      num_encoded_ = num_bytes_ + bytes;
      report();
    }
    // Else the part would keep tokens of a text that changed while it was read.
    for (uint64_t document = begin.document;
         document < at.document || (document == at.document && at.offset > 0); ++document)
      STOKER_RETURN_IF_ERROR(check_unchanged(document));
    footer.end = at;
    return default_file_system().write(fd, std::as_bytes(std::span(&footer, 1)), path);
  }

  Status check_unchanged(uint64_t document) const {
    struct stat info {};
    const std::string path = files_.path(document);
    if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, "stat " + path);
    return files_.check(document, info);
  }

  DocumentEncoder::MakeTokenizer make_text_tokenizer() const {
    return [this](std::function<bool()> should_stop) -> std::unique_ptr<TextTokenizer> {
      if (request_.maybe_sandbox == nullptr) return std::make_unique<LocalTokenizer>(tokenizer_);
      return request_.maybe_sandbox->make_tokenizer(request_.name, tokenizer_->digest(),
                                                    DocumentEncoder::kWindowBytes,
                                                    std::move(should_stop));
    };
  }
  size_t max_threads() const {
    return request_.maybe_sandbox == nullptr ? static_cast<size_t>(num_usable_cores())
                                             : request_.maybe_sandbox->max_processes();
  }

  std::vector<std::byte> pack(const std::vector<int32_t>& ids) const {
    std::vector<std::byte> packed(ids.size() * width_);
    for (size_t i = 0; i < ids.size(); ++i)
      std::memcpy(packed.data() + i * width_, &ids[i], width_);
    return packed;
  }

  void log_result() const {
    if (metadata_.made.size() == 0) return;
    if (num_reused_ > 0)
      log_info(
          "token cache reused",
          {{"dataset", request_.name}, {"files", num_reused_}, {"path", metadata_.made.path(0)}});
    if (num_reused_ == metadata_.made.size()) return;
    uint64_t tokens = 0;
    for (const uint64_t part : metadata_.numbers) tokens += part;
    std::string end = "-";
    if (const auto id = tokenizer_->end_token()) {
      end = tokenizer_->bytes_of(*id);
      if (end.empty()) end = std::to_string(*id);  // a control symbol of SentencePiece
    }
    log_info("text tokenized", {{"dataset", request_.name},
                                {"documents", files_.size()},
                                {"bytes", total_bytes_},
                                {"tokens", tokens},
                                {"end_token", end},
                                {"path", metadata_.made.path(0)}});
  }

  // Constant after construction.
  const DatasetRequest& request_;
  const files::FileTable& files_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const uint64_t width_;
  const files::ScanProgress& progress_;
  uint64_t total_bytes_ = 0;
  uint64_t part_bytes_ = 0;
  std::string identity_;

  FileLock lock_;
  bool is_locked_ = false;  // or cannot be locked
  DocumentEncoder encoder_;
  files::IndexMetadata metadata_;
  uint64_t num_bytes_ = 0;    // of text in the parts so far
  uint64_t num_encoded_ = 0;  // also in the part that is written
  size_t num_reused_ = 0;
};

// Files of another tokenizer or text, which an earlier start made next to the index.
void remove_unused_parts(const DatasetRequest& request, const files::FileTable& used) {
  const std::string prefix = request.name + ".tokens-";
  const std::string index_dir(request.index_dir);
  const auto names = list_directory(index_dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix) || !name.ends_with(".tokens")) continue;
    const std::string path = index_dir + '/' + name;
    bool is_used = false;
    for (size_t file = 0; file < used.size(); ++file) is_used |= used.path(file) == path;
    if (!is_used) (void)default_file_system().remove_file(path);
  }
}

}  // namespace

Result<files::IndexMetadata> build_token_cache(
    const DatasetRequest& request, const files::FileTable& files,
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const files::ScanProgress& progress,
    uint64_t part_bytes) {
  STOKER_ASSIGN_OR_RETURN(
      files::IndexMetadata metadata,
      TokenCacheBuilder(request, files, std::move(tokenizer), progress, part_bytes).build());
  remove_unused_parts(request, metadata.made);
  return metadata;
}

bool is_token_cache_of(const tokenizer::Tokenizer& tokenizer,
                       const files::IndexMetadata& metadata) {
  return metadata.names.size() == 1 && metadata.names[0] == tokenizer.digest();
}

Result<std::vector<uint64_t>> token_cache_bytes(const files::IndexMetadata& metadata,
                                                uint64_t width) {
  const Status wrong(StatusCode::kCorrupt, "the index does not describe the tokens of its text");
  if (metadata.made.size() == 0 || metadata.numbers.size() != metadata.made.size()) return wrong;
  std::vector<uint64_t> bytes;
  uint64_t total = 0;
  for (size_t file = 0; file < metadata.made.size(); ++file) {
    const uint64_t size = metadata.made.stamp(file).size;
    if (metadata.numbers[file] > size / width || size > static_cast<uint64_t>(INT64_MAX) - total)
      return wrong;
    bytes.push_back(metadata.numbers[file] * width);
    total += size;
  }
  return bytes;
}

}  // namespace stoker::data::cache
