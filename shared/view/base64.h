// Base64 (RFC 4648), for data URLs and the hashes of a Content-Security-Policy.
//
// Threads: pure function.
#pragma once

#include <string>
#include <string_view>

#include <openssl/evp.h>

namespace stoker::view {

// Less than 1.5 GiB.
inline std::string to_base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // the library also writes a zero byte
  ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                    reinterpret_cast<const unsigned char*>(bytes.data()),
                    static_cast<int>(bytes.size()));
  out.pop_back();
  return out;
}

}  // namespace stoker::view
