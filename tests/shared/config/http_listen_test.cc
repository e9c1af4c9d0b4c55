#include "shared/config/http_listen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::config {
namespace {

using ::testing::HasSubstr;

TEST(HttpListenTest, ParsesAddresses) {
  EXPECT_EQ(*parse_http_listen("unix:/run/x.sock"), (HttpListen{.unix_path = "/run/x.sock"}));
  EXPECT_EQ(*parse_http_listen("127.0.0.1:9750"),
            (HttpListen{.address = "127.0.0.1", .port = 9750}));
  EXPECT_EQ(*parse_http_listen("localhost:0"), (HttpListen{.address = "127.0.0.1"}));
  EXPECT_EQ(*parse_http_listen("[::1]:80"), (HttpListen{.address = "::1", .port = 80}));
}

TEST(HttpListenTest, RejectsOtherAddresses) {
  for (const char* const text : {"", "9750", "unix:", "unix:x.sock", "127.0.0.1", "127.0.0.1:x",
                                 "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1: 80"})
    EXPECT_EQ(parse_http_listen(text).status().code(), StatusCode::kInvalidArgument) << text;
  for (const char* const text : {"0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.org:80", ":80",
                                 "128.0.0.1:80", "[::ffff:127.0.0.1]:80"})
    EXPECT_THAT(parse_http_listen(text).status().message(), HasSubstr("reverse proxy")) << text;
}

}  // namespace
}  // namespace stoker::config
