#include "tests/support/packed_bytes.h"

#include <zlib.h>
#include <zstd.h>

#include <cstdlib>

namespace stoker::test {
namespace {

std::string pack(const std::string& content, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    std::abort();
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace

std::string gzip(const std::string& content) { return pack(content, 15 + 16); }
std::string deflate(const std::string& content) { return pack(content, -15); }
std::string zstd(const std::string& content) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  const size_t size =
      ZSTD_compress2(context, packed.data(), packed.size(), content.data(), content.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size) != 0) std::abort();
  packed.resize(size);
  return packed;
}
uint32_t crc32_of(const std::string& content) {
  return static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(content.data()),
                                       static_cast<uInt>(content.size())));
}

}  // namespace stoker::test
