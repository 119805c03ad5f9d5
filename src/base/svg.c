#include "base/svg.h"

#include "base/utf8.h"

void svg_length(struct text *out, const char *before, double length) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.2f", length);
    while (digits[n - 1] == '0')
        digits[--n] = '\0';
    if (digits[n - 1] == '.')
        digits[--n] = '\0';
    text_add(out, "%s%s", before, strcmp(digits, "-0") == 0 ? "0" : digits);
}

void svg_words(struct text *out, const char *words) {
    for (const char *s = words; *s; s++) {
        uint32_t code = 0;
        size_t bytes = utf8_decode(s, UTF8_BYTES_MAX, &code);
        switch (*s) {
        case '&':
            text_add(out, "&amp;");
            break;
        case '<':
            text_add(out, "&lt;");
            break;
        case '>':
            text_add(out, "&gt;");
            break;
        default:
            if (code == 0xFFFE || code == 0xFFFF)
                text_add(out, "?"); // UTF-8 that XML does not allow
            else
                text_add_bytes(out, bytes && code < 0x20 ? " " : bytes ? s : "?", MAX(bytes, 1));
            s += MAX(bytes, 1) - 1;
        }
    }
}

bool svg_is_dark(int colour) {
    return .299 * (colour >> 16) + .587 * (colour >> 8 & 255) + .114 * (colour & 255) < 125;
}

void svg_box(struct text *out, double x, double y, double width, double height, int colour) {
    svg_length(out, "<rect x=\"", x);
    svg_length(out, "\" y=\"", y);
    svg_length(out, "\" width=\"", width);
    svg_length(out, "\" height=\"", height);
    text_add(out, "\" fill=\"#%06x\"/>\n", colour);
}

void svg_text(struct text *out, double x, double y, const char *words) {
    svg_length(out, "<text x=\"", x);
    svg_length(out, "\" y=\"", y);
    text_add(out, "\">");
    svg_words(out, words);
    text_add(out, "</text>\n");
}

void svg_begin(struct text *out, double width, double height, double left, const char *title) {
    svg_length(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width);
    svg_length(out, "\" height=\"", height);
    svg_length(out, "\" viewBox=\"0 0 ", width);
    svg_length(out, " ", height);
    text_add(out, "\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#111\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    svg_length(out, "<text x=\"", left);
    text_add(out, "\" y=\"19\" font-size=\"12.5\" font-weight=\"bold\">");
    svg_words(out, title);
    text_add(out, "</text>\n");
}

void svg_end(struct text *out) {
    text_add(out, "</svg>\n");
}
