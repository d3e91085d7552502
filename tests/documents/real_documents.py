"""Ten documents as people write them, by name: the format and the text."""

README = """\
# parcel-rate

[![Tests](https://img.example.org/ci.svg)](https://ci.example.org/parcel-rate)
![Python 3.11+](https://img.example.org/py.svg "supported versions")

**parcel-rate** computes what a parcel costs. It reads the tariffs of *four* carriers, and it never
calls the network.

## Install
```bash
pip install "parcel-rate[tables]"
```

## Use
```python
from parcel_rate import quote

print(quote(weight_kg=2.5, zone="EU"))  # 11.90
```

`quote()` takes these arguments:

| argument | type | meaning |
| :--- | :---: | ---: |
| `weight_kg` | `float` | the weight, *with* packaging |
| `zone` | `str` | one of `"DE"`, `"EU"` or `"WORLD"` |

1. Weigh the parcel.
2. Call `quote()`; see the [reference](docs/api.md#quote).
   - Light parcels (< 1 kg) have one price.
   - Heavy parcels don't.
3. Done!

Questions? Write to <parcels@example.org> or open an [issue][tracker].

[tracker]: https://git.example.org/parcel-rate/issues "the tracker"
"""

HUGO_POST = """\
+++
title = "Why we left the cloud"
date = 2026-03-01
draft = false
tags = ["servers", "costs"]
+++

We moved three services to our own machines. {{< figure src="rack.jpg" caption="Our rack" >}}

<!--more-->

## What it cost {#costs}

The old bill was \\$4,200 a month[^1]. The new one is *much* smaller.

> Buy the machine, then rent the room.
>
> — our accountant

[^1]: Without backups.

{{% notice tip %}}
Measure first.
{{% /notice %}}
"""

MYST_PAGE = """\
---
myst:
  html_meta:
    "description lang=en": "Masks of attention"
---

(masks)=
# Masks

:::{note}
A mask is *added* to the scores.
:::

The score is $s_{ij} = q_i \\cdot k_j / \\sqrt{d}$, see {ref}`masks` and {py:class}`~lib.Mask`.

$$
a = \\mathrm{softmax}(s + m)
$$ (eq-softmax)

```{code-block} python
:emphasize-lines: 1
mask = band_part(ones, -1, 0)
```

Term
: What it means, in one line.
"""

ISSUE = """\
### Export fails on Windows

> [!WARNING]
> This loses data.

- [x] I searched the issues
- [ ] I tried the newest version

Since **v2.3** the command `export --out C:\\temp` stops with ~~an error~~ a traceback, as @someone
said in #123:

<details>
<summary>Log</summary>

```
OSError: [WinError 5]
```

</details>

Press <kbd>Ctrl</kbd>+<kbd>C</kbd> to stop it. cc @another
"""

MKDOCS_PAGE = """\
# Tutorial

!!! tip "Read this first"
    The examples need Python 3.11 or newer.

=== "Linux"

    Run `make`.

=== "Windows"

    Run `build.cmd`.

/// note | Versions
You can pin it, for example `==1.2.*`.
///

::: package.module.Name

*[API]: application programming interface
"""

CHANGELOG = """\
# Changelog

## [1.4.0] - 2026-02-11
### Added
- `--quiet`, for scripts ([#88](https://git.example.org/88)).
- Support for `a_b_c` names & 3 * 4 grids.

### Fixed
* A crash on empty files (thanks, [@kim](https://git.example.org/kim)!)
* Wrong sums: 5 < 6 was false.

[1.4.0]: https://git.example.org/compare/v1.3.0...v1.4.0
"""

CHINESE_NOTES = """\
# 安装说明

**注意：**请先备份数据。然后运行 `setup.sh`，再打开[首页](index.html)。

- 第一步：下载。
- 第二步：安装。
"""

NEWS_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <title>Bridge opens &ndash; The Local</title>
  <meta name="description" content="The new bridge opened.">
  <style>p > a { color: red }</style>
</head>
<body>
  <nav><ul><li><a href="/">Home</a><li><a href="/sport" title="All sport">Sport</a></ul></nav>
  <article>
    <h1>The bridge is open</h1>
    <p class="lead">After <em>nine</em> years, the bridge over the river opened on Monday.
    <p>&ldquo;It&rsquo;s about time&rdquo;, said a driver. <img src="b.jpg" alt="The bridge"> She
    paid 4&nbsp;&euro;.<br>The toll ends in <time datetime="2027">2027</time>.
    <blockquote>Nobody believed it.</blockquote>
    <script>if (a < b && c > d) { count("<p>"); }</script>
  </article>
  <form><input placeholder="Your email"><button>Subscribe &amp; read</button></form>
</body>
</html>
"""

RUBY_PAGE = """\
<main>
<p>Say <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rp>(</rp><rt>ji</rt><rp>)</rp></ruby> twice.</p>
<table>
<caption>Prices</caption>
<thead><tr><th>Item<th>Price</thead>
<tbody><tr><td>Tea, <b>green</b><td translate="no">EUR 3
<tr><td>Coffee &amp; cake<td>EUR 7</table>
<p>Code: <code>x &lt; y</code>, key <kbd>F1</kbd>, <span class="notranslate">ACME Ltd.</span> too.
</main>
"""

NEWSLETTER = """\
<table width="600" cellpadding="0" border=0><tr><td align=center>
<font face="Arial" size=2>Dear {{ customer.name }},<br><br>
your order <b>#{{ order.id }}</b> is on its way! {% if express %}It arrives tomorrow.{% endif %}
<a href="https://shop.example.org/t?id={{ order.id }}&amp;x=1">Track it</a> or call us.</font>
</td></tr></table>
"""

DOCUMENTS = {
    "readme": ("markdown", README),
    "hugo post": ("markdown", HUGO_POST),
    "myst page": ("markdown", MYST_PAGE),
    "issue": ("markdown", ISSUE),
    "mkdocs page": ("markdown", MKDOCS_PAGE),
    "changelog": ("markdown", CHANGELOG),
    "chinese notes": ("markdown", CHINESE_NOTES),
    "news page": ("html", NEWS_PAGE),
    "ruby page": ("html", RUBY_PAGE),
    "newsletter": ("html", NEWSLETTER),
}
