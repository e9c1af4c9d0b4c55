#include "shared/view/page.h"

#include <array>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/utf8.h"
#include "shared/view/base64.h"

#define STOKER_PAGE_FILE(name)            \
  extern const char stoker_page_##name[]; \
  extern const char stoker_page_##name##_end[];
extern "C" {
STOKER_PAGE_FILE(html)
STOKER_PAGE_FILE(css)
STOKER_PAGE_FILE(js)
STOKER_PAGE_FILE(chart_js)
STOKER_PAGE_FILE(chart_license)
}
#undef STOKER_PAGE_FILE

namespace stoker::view {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// Inside <script>, "</script" and "<!--" would end or change the element. In JSON, '<' occurs in
// strings only.
std::string escape_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : printable_json(json)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string source_hash(std::string_view text) {
  const std::string hex = sha256_hex(text);
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return "'sha256-" + to_base64(bytes) + "'";
}

std::string make_policy(std::string_view sources) {
  return "default-src 'none'; script-src " +
         source_hash(between(stoker_page_chart_js, stoker_page_chart_js_end)) + " " +
         source_hash(between(stoker_page_js, stoker_page_js_end)) + "; style-src " +
         source_hash(between(stoker_page_css, stoker_page_css_end)) + "; " + std::string(sources) +
         "; base-uri 'none'; form-action 'none'";
}

// Replaces {{NAME}} of page.html.
std::string assemble(std::string_view meta, std::string_view data) {
  const std::string license =
      escape_html(between(stoker_page_chart_license, stoker_page_chart_license_end));
  const std::array<std::pair<std::string_view, std::string_view>, 6> parts{
      {{"{{meta}}", meta},
       {"{{style}}", between(stoker_page_css, stoker_page_css_end)},
       {"{{data}}", data},
       {"{{license}}", license},
       {"{{chart}}", between(stoker_page_chart_js, stoker_page_chart_js_end)},
       {"{{script}}", between(stoker_page_js, stoker_page_js_end)}}};
  std::string out;
  std::string_view rest = between(stoker_page_html, stoker_page_html_end);
  for (const auto& [name, text] : parts) {  // in this order in page.html
    const size_t at = rest.find(name);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at == rest.npos ? rest.size() : at + name.size());
  }
  return out += rest;
}

}  // namespace

const Page& live_page() {
  static const Page page{.html = assemble("", "null"),
                         .security_policy = make_policy(
                             "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'")};
  return page;
}

std::string report_page(std::string_view data) {
  const std::string meta = "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
                           make_policy("img-src data:") + "\">";
  return assemble(meta, escape_json(data));
}

}  // namespace stoker::view
