#include "shared/view/page.h"

#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/view/base64.h"

namespace stoker::view {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PageTest, HasNoExternalResources) {
  const std::string& html = live_page().html;
  EXPECT_LE(html.size(), size_t{1} << 20);
  EXPECT_THAT(html, HasSubstr("Chart.js v3"));
  EXPECT_THAT(html, HasSubstr("Permission is hereby granted"));  // its license
  // No element that loads something, and no script or style that the policy would not permit.
  EXPECT_FALSE(std::regex_search(html, std::regex("<(iframe|object|embed|base|form)[ >]")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<script[^>]* src=")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<(link|img)[^>]* (href|src)=\"(?!data:)")));
  EXPECT_FALSE(std::regex_search(html, std::regex("<[a-z]+ [^<>]* (style|on[a-z]+)=\"")));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
}

TEST(PageTest, PermitsItsOwnScriptsAndStylesOnly) {
  const std::string& policy = live_page().security_policy;
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
}

TEST(PageTest, EscapesDataOfReport) {
  const std::string html = report_page(R"({"a":"</script><script>alert(1)</script><!--"})");
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, HasSubstr(R"({"a":"\u003c/script>\u003cscript>alert(1))"));
  EXPECT_THAT(html, HasSubstr("http-equiv=\"Content-Security-Policy\""));
  EXPECT_THAT(html, Not(HasSubstr("connect-src")));
}

TEST(Base64Test, EncodesWithPadding) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64("\xff\xfe"), "//4=");
}

}  // namespace
}  // namespace stoker::view
