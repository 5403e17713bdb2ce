// Draws a report from the JSON in #data. SPDX-License-Identifier: Apache-2.0
'use strict';
(() => {
  const { title, version, runs } = JSON.parse(document.getElementById('data').textContent);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  // Okabe and Ito's colours, which people with any colour vision tell apart; the black one follows the page.
  const light_colours = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#8a6d00', '#56b4e9', '#1b1f24', '#e69f00'];
  const dark_colours = ['#56b4e9', '#ff8f45', '#2cc295', '#e59cc4', '#f0e442', '#8ab6ff', '#e6e9ed', '#e69f00'];
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  const colour = (i) => (dark.matches ? dark_colours : light_colours)[i % 8];
  const dash = (i) => dashes[Math.floor(i / 8) % dashes.length];

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const by_id = (id) => document.getElementById(id);

  // Numbers for people.
  const short = (x) => (x === null || x === undefined || !Number.isFinite(x) ? '' :
    Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(Number(x.toPrecision(4))));
  const whole = (x) => (x === undefined || x === null ? '' : Math.round(x).toLocaleString('en-US'));
  const bytes = (x) => {
    for (const [size, unit] of [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']])
      if (Math.abs(x) >= size) return short(x / size) + ' ' + unit;
    return short(x) + ' B';
  };
  const percent = (x) => (x === undefined || x === null ? '' : (100 * x).toFixed(2) + ' %');
  const seconds = (x) => (x >= 120 ? short(x / 60) + ' min' : x >= 1 ? short(x) + ' s' : short(1e3 * x) + ' ms');
  const times = (x) => (x === undefined || x === null ? '' : short(x) + '×');

  // Over a sixtieth of the run around each point.
  const smooth = (list) => {
    const reach = Math.floor(list.length / 120);
    return list.map((y, i) => (y === null ? null : mean_of(list.slice(Math.max(0, i - reach), i + reach + 1))));
  };
  const extreme = (list, of) => {
    const reach = Math.floor(list.length / 120);
    return list.map((y, i) => (y === null ? null : of(...list.slice(Math.max(0, i - reach), i + reach + 1).filter((x) => x !== null))));
  };
  // Over the whole run; groups of a run have the same number of steps but for the last.
  const mean_of = (list) => {
    const there = (list || []).filter((x) => x !== null);
    return there.length === 0 ? undefined : there.reduce((a, b) => a + b, 0) / there.length;
  };
  const ratio_of = (run, prefix) => {
    const values = run.series[prefix + '/values'], sent = run.series[prefix + '/payload_bytes'];
    return values && sent && values.map((v, i) => (v === null || !sent[i] ? null : 4 * v / sent[i]));
  };
  const parts_of = (run, group) => {
    const names = Object.keys(run.series).filter((key) => key.startsWith(group + '/') && key.endsWith('/values'));
    return names.map((key) => key.slice(group.length + 1, -'/values'.length));
  };

  // Tables.
  const fill_table = (table, head, rows) => {
    const side = (i) => (i === 0 || /^[\d.]/.test((rows[0] || [])[i] || '0') ? '' : 'text');  // texts left, numbers right
    const row = (tag, cells) => element('tr', {}, ...cells.map((cell, i) => element(tag, { className: side(i) }, cell ?? '')));
    table.replaceChildren(element('thead', {}, row('th', head)), element('tbody', {}, ...rows.map((cells) => row('td', cells))));
    return table;
  };
  const text_of = (table, as) => {
    const rows = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    if (as === 'csv')
      return rows.map((row) => row.map((cell) => '"' + cell.replaceAll('"', '""') + '"').join(',')).join('\n') + '\n';
    const line = (row) => '| ' + row.map((cell) => cell.replaceAll('|', '\\|')).join(' | ') + ' |';
    const rule = '| --- |' + ' ---: |'.repeat(rows[0].length - 1);
    return [line(rows[0]), rule, ...rows.slice(1).map(line)].join('\n') + '\n';
  };
  const copy = async (button) => {
    const text = text_of(by_id(button.dataset.copy), button.dataset.as);
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // pages from a file have no clipboard in some browsers
      const area = element('textarea', { value: text });
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    const before = button.textContent;
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = before; }, 1500);
  };

  const results = () => {
    const any = (key) => runs.some((run) => run.summary[key] !== undefined);
    const columns = [
      ['run', (run) => run.name],
      ['codec', (run) => run.settings['exchange.codec'] || run.summary.codec || ''],
      ['workers', (run) => whole(run.summary.world_size)],
      ['steps', (run) => whole(run.steps) + (run.finished ? '' : ' so far')],
      ['test error', (run) => percent((run.tests.at(-1) || {}).error)],
      ['held-out error', (run) => percent((run.tests.at(-1) || {}).hold_out_error)],
      ['bytes sent per step', (run) => whole(run.summary.sent_bytes_per_step ?? mean_of(run.series.sent_bytes))],
      ['most in a step', (run) => whole(run.summary.peak_sent_bytes)],
      ['wire ratio', (run) => times(run.summary.wire_ratio)],
      ['codec ratio', (run) => times(run.summary.codec_ratio)],
      ['kept / target', (run) => (run.summary.achieved_over_target ? short(run.summary.achieved_over_target) : '')],
      ['skipped', (run) => whole(run.skipped)],
      ['time', (run) => seconds(run.series.seconds ? run.series.seconds.at(-1) : 0)],
    ].filter(([name]) => (name !== 'held-out error' || runs.some((run) => run.tests.some((test) => test.hold_out_error !== undefined))) &&
                         (name !== 'most in a step' || any('peak_sent_bytes')) &&
                         (name !== 'kept / target' || any('achieved_over_target')));
    fill_table(by_id('results'), columns.map(([name]) => name), runs.map((run) => columns.map(([, of]) => of(run))));
  };

  // Charts: each knows how to make its data from what is chosen, and is drawn again when that changes.
  const positions = {
    step: { name: 'steps', of: (at) => at.step, text: whole },
    epoch: { name: 'epochs', of: (at) => at.epoch, text: short },
    seconds: { name: 'seconds', of: (at) => at.seconds, text: short },
    sent: { name: 'bytes sent by rank 0', of: (at) => at.sent, text: bytes },
  };
  let position = 'step';
  const shown = runs.map((run, i) => i < 12);
  const charts = [];

  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.labels.boxHeight = 2;
  Chart.defaults.font.family = 'system-ui, sans-serif';

  const figure = (section, name, note, selects = []) => {
    const canvas = element('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', name);
    const pickers = selects.map(({ label, options, change }) => {
      const select = element('select', {}, ...options.map(([value, text]) => element('option', { value, textContent: text })));
      select.setAttribute('aria-label', label);
      select.addEventListener('change', () => change(select.value));
      return select;
    });
    by_id(section).append(element('figure', {},
      element('figcaption', {}, element('h3', { textContent: name }), ...pickers, element('span', { className: 'note', textContent: note })),
      element('div', { className: 'plot' }, canvas)));
    return canvas;
  };
  const draw = (chart) => {
    if (chart.drawn) chart.drawn.destroy();
    Chart.defaults.color = getComputedStyle(document.body).getPropertyValue('--quiet').trim();
    Chart.defaults.borderColor = getComputedStyle(document.body).getPropertyValue('--line').trim();
    chart.drawn = new Chart(chart.canvas, chart.config());
  };
  const add_chart = (canvas, config) => {
    const chart = { canvas, config };
    charts.push(chart);
    draw(chart);
    return chart;
  };
  const draw_all = () => charts.forEach(draw);

  const points = (run, list) => (list || []).flatMap((y, i) => {
    const x = (run.series[position] || [])[i];
    return y === null || y === undefined || x === null || x === undefined ? [] : [{ x, y }];
  });
  const line = (name, i, data, more = {}) => ({
    label: name, data, borderColor: colour(i), backgroundColor: colour(i), borderDash: dash(i), borderWidth: 1.75,
    pointRadius: data.length > 60 ? 0 : 2.5, pointHitRadius: 6, ...more,
  });
  const line_config = (datasets, what, { logarithmic = false, text = short, legend = false } = {}) => ({
    type: 'line',
    data: { datasets },
    options: {
      parsing: false, normalized: true, interaction: { mode: 'nearest', axis: 'x', intersect: false },
      scales: {
        x: { type: 'linear', title: { display: true, text: positions[position].name }, ticks: { callback: positions[position].text, maxRotation: 0 } },
        y: { type: logarithmic ? 'logarithmic' : 'linear', title: { display: what !== '', text: what }, ticks: { callback: text } },
      },
      plugins: {
        legend: { display: legend, labels: { filter: (item) => item.text !== '' } },
        tooltip: { callbacks: { title: (items) => (items.length === 0 ? '' : positions[position].text(items[0].parsed.x) + ' ' + positions[position].name),
                                label: (item) => ` ${item.dataset.label}: ${text(item.parsed.y)}` } },
      },
    },
  });
  const of_shown = (make) => runs.flatMap((run, i) => (shown[i] ? make(run, i) : []));

  const training = () => {
    const measures = [
      ['hold_out_error', 'error on held-out samples', percent], ['error', 'test error', percent], ['loss', 'test loss', short],
      ['compressed_error', 'test error of compressed weights', percent], ['leader_error', 'test error of the leader', percent],
      ['spread', 'spread of the workers', short],
    ].filter(([key]) => runs.some((run) => run.tests.some((test) => test[key] !== undefined)));
    if (measures.length > 0) {
      let measure = measures[0];
      const canvas = figure('training', 'Tests', 'measured after each epoch, or as often as the recipe says', [{
        label: 'measure', options: measures.map(([key, name]) => [key, name]),
        change: (key) => { measure = measures.find((row) => row[0] === key); draw(chart); },
      }]);
      const chart = add_chart(canvas, () => {
        const [key, , text] = measure;
        return line_config(of_shown((run, i) => line(run.name, i, run.tests.flatMap((test) =>
          (test[key] === undefined || test[key] === null ? [] : [{ x: positions[position].of(test), y: test[key] }])), { pointRadius: 3 })), '', { text });
      });
    }
    const canvas = figure('training', 'Training loss', 'of rank 0, the mean over a sixtieth of the run around each point; the shaded range is from the least to the largest');
    add_chart(canvas, () => {
      const many = shown.filter(Boolean).length > 3;
      return line_config(of_shown((run, i) => {
        const mean = line(run.name, i, points(run, smooth(run.series.loss || [])));
        if (many) return [mean];
        const range = { borderWidth: 0, pointRadius: 0, pointHitRadius: 0, backgroundColor: colour(i) + '26' };
        return [mean, line('', i, points(run, extreme(run.series.loss_largest, Math.max)), { ...range, fill: '+1' }), line('', i, points(run, extreme(run.series.loss_least, Math.min)), range)];
      }), 'loss');
    });
  };

  const step_time = () => {
    const thread = [['fetch', 'fetching samples'], ['compute', 'forward and backward pass'], ['wait', 'waiting for the exchange'], ['update', 'optimiser']];
    const exchange = [['compress', 'compressing'], ['wire', 'on the wire'], ['decompress', 'decompressing']];
    const canvas = figure('time', 'Mean of a step',
      'upper bar: the training thread; lower bar: the exchange, which works beside it, so that its time counts only where the training thread waits');
    canvas.parentElement.style.height = `${Math.max(12, 5 + 3 * runs.length)}rem`;
    add_chart(canvas, () => {
      const seen = runs.filter((run, i) => shown[i]);
      const bars = (rows, stack, first) => rows.map(([key, name], i) => ({
        label: name, stack, data: seen.map((run) => 1e3 * (mean_of(run.series['time/' + key]) || 0)), backgroundColor: colour(first + i), maxBarThickness: 22,
      }));
      return {
        type: 'bar', data: { labels: seen.map((run) => run.name), datasets: [...bars(thread, 'training', 0), ...bars(exchange, 'exchange', thread.length)] },
        options: {
          indexAxis: 'y',
          scales: { x: { stacked: true, title: { display: true, text: 'milliseconds' } }, y: { stacked: true } },
          plugins: { legend: { position: 'bottom', labels: { boxWidth: 14, boxHeight: 10 } },
                     tooltip: { callbacks: { label: (item) => ` ${item.dataset.label}: ${short(item.parsed.x)} ms` } } },
        },
      };
    });
  };

  const compression = () => {
    const all_kinds = (run) => {
      const kinds = parts_of(run, 'kind');
      if (kinds.length === 0) return undefined;
      const total = (key) => run.series.step.map((_, i) => kinds.reduce((sum, kind) => sum + ((run.series[`kind/${kind}/${key}`] || [])[i] || 0), 0));
      const values = total('values'), sent = total('payload_bytes');
      return values.map((v, i) => (sent[i] ? 4 * v / sent[i] : null));
    };
    const quantities = [
      ['ratio', 'codec ratio: 4 bytes per value over payload bytes', all_kinds, { logarithmic: true, text: times }],
      ['kept_over_target', 'values kept, over the target', (run) => run.series.kept_over_target, {}],
      ['sent_bytes', 'bytes that rank 0 sent in a step', (run) => run.series.sent_bytes, { logarithmic: true, text: bytes }],
      ['gradient_norm', 'norm of the gradient', (run) => run.series.gradient_norm, { logarithmic: true }],
      ['rest_norm', 'norm of what the memory keeps', (run) => run.series.rest_norm, { logarithmic: true }],
      ['rest_share', 'what the memory keeps, over the gradient (norms)', (run) => run.series.rest_norm && run.series.gradient_norm &&
        run.series.rest_norm.map((rest, i) => (rest === null || !run.series.gradient_norm[i] ? null : rest / run.series.gradient_norm[i])), {}],
      ['learning_rate', 'learning rate', (run) => run.series.learning_rate, {}],
    ].filter(([, , of]) => runs.some((run) => (of(run) || []).some((y) => y !== null && y !== 0)));
    if (quantities.length === 0) return;
    let quantity = quantities[0];
    const canvas = figure('compression', 'Over the run', 'means of the steps that one point stands for', [{
      label: 'quantity', options: quantities.map(([key, name]) => [key, name]),
      change: (key) => { quantity = quantities.find((row) => row[0] === key); draw(chart); },
    }]);
    const chart = add_chart(canvas, () => {
      const [, , of, style] = quantity;
      const keep = (y) => y !== null && (!style.logarithmic || y > 0);
      return line_config(of_shown((run, i) => line(run.name, i, points(run, (of(run) || []).map((y) => (keep(y) ? y : null))))), '', style);
    });
    parts();
  };

  // One run, by kind of tensor, or by layer where the run wrote that (run.stream_metrics).
  const parts = () => {
    const able = runs.map((run, i) => [run, i]).filter(([run]) => parts_of(run, 'kind').length > 0);
    if (able.length === 0) return;
    const divided = able.find(([run]) => parts_of(run, 'layer').length > 1 || parts_of(run, 'kind').length > 1);
    let chosen = (divided || able[0])[1];
    let quantity = 'ratio';
    const options = [['ratio', 'codec ratio'], ['density', 'share of the values that is kept'], ['gradient_norm', 'norm of the gradient'], ['rest_norm', 'norm of what the memory keeps']];
    const has_layers = (run) => parts_of(run, 'layer').length > 0;
    const canvas = figure('compression', 'By layer, or kind of tensor', 'the 12 largest; layers where the run had run.stream_metrics, which norms and shares need', [
      { label: 'run', options: able.map(([run, i]) => [i, run.name]), change: (i) => { chosen = Number(i); draw(chart); } },
      { label: 'quantity', options, change: (key) => { quantity = key; draw(chart); } },
    ]);
    const select = canvas.closest('figure').querySelector('select');
    select.value = chosen;
    const chart = add_chart(canvas, () => {
      const run = runs[chosen];
      const group = has_layers(run) ? 'layer' : 'kind';
      const largest = parts_of(run, group).sort((a, b) => mean_of(run.series[`${group}/${b}/values`]) - mean_of(run.series[`${group}/${a}/values`])).slice(0, 12);
      const of = (name) => {
        const series = (key) => run.series[`${group}/${name}/${key}`] || [];
        if (quantity === 'ratio') return ratio_of(run, `${group}/${name}`);
        if (quantity === 'density') return series('kept').map((kept, i) => (kept === null ? null : kept / series('values')[i]));
        return series(quantity);
      };
      return line_config(largest.map((name, i) => line(name, i, points(run, of(name)))), '', { legend: true });
    });
  };

  const more = () => {
    const led = runs.map((run, i) => [run, i]).filter(([run]) => run.leaders.length > 0);
    if (led.length > 0)
      add_chart(figure('more', 'Leaders', 'which worker led after each global round'), () => {
        const config = line_config(led.flatMap(([run, i]) => (shown[i] ? [line(run.name, i, run.leaders.map(([x, y]) => ({ x, y })), { showLine: false, pointRadius: 3 })] : [])), 'worker');
        config.options.scales.x.title.text = 'steps';
        config.options.scales.x.ticks.callback = whole;
        return config;
      });
    const rounds = [['round/global/sent_bytes', 'bytes of a global round', bytes], ['round/local/sent_bytes', 'bytes of a local round', bytes],
                    ['round/global/seconds', 'time of a global round', seconds], ['round/attendance', 'workers that took part in a round', short],
                    ['round/staleness', 'steps between begin and end of a round', short], ['left_out', 'ranks that were left out of a step', short],
                    ['pipeline/idle_share', 'share of time that stages are idle', percent]];
    for (const [key, name, text] of rounds)
      if (runs.some((run) => run.series[key]))
        add_chart(figure('more', name[0].toUpperCase() + name.slice(1), 'means of the steps that one point stands for'),
          () => line_config(of_shown((run, i) => line(run.name, i, points(run, run.series[key] || []))), name, { text }));
    if (runs.some((run) => parts_of(run, 'boundary').length > 0))
      add_chart(figure('more', 'Boundaries', 'codec ratio of what stages of the pipeline send each other'),
        () => line_config(of_shown((run, i) => parts_of(run, 'boundary').map((name, k) => line(`${run.name}: ${name}`, i + k, points(run, ratio_of(run, 'boundary/' + name))))), 'codec ratio', { text: times, legend: true }));
    by_id('more').hidden = by_id('more').children.length === 1;
  };

  // Which codec each tensor had, from which step on.
  const codecs = () => {
    const listed = (names) => (names.length <= 6 ? names.join(', ') :
      element('details', {}, element('summary', { textContent: `${names.length} tensors: ${names.slice(0, 3).join(', ')}, ...` }), names.join(', ')));
    const more_of = (run) => (run.more_codecs > 0 ? [[run.name, '', '', `${whole(run.more_codecs)} more changes are not listed`, '']] : []);
    const rows = runs.flatMap((run) => [...run.codecs.flatMap(({ step, codecs, why }) =>
      Object.entries(codecs).map(([codec, tensors]) => [run.name, whole(step), codec, listed(tensors), why])), ...more_of(run)]);
    by_id('codecs').hidden = rows.length === 0;
    if (rows.length === 0) return;
    const table = fill_table(element('table', { className: 'texts' }), ['run', 'from step', 'codec', 'tensors', 'why'], rows);
    by_id('codecs').append(element('div', { className: 'scrolls' }, table));
  };

  // Pages of their own, which the folders of the runs hold.
  const influence = () => {
    const pages = runs.filter((run) => run.influence);
    by_id('influence').hidden = pages.length === 0;
    const address = (path) => path.split('/').map(encodeURIComponent).join('/');
    by_id('influence').append(
      element('p', { textContent: 'Samples that raise and lower the loss of others, as pictures, in a page of its own for each run:' }),
      element('ul', {}, ...pages.map((run) => element('li', {}, element('a', { href: address(run.influence), textContent: run.name })))));
  };

  const events = () => {
    const rows = runs.flatMap((run) => run.events.map((event) => [run.name, whole(event.step), event.what]));
    const sum_of = (key) => runs.reduce((sum, run) => sum + run[key], 0);
    const more = sum_of('more_events');
    by_id('events').hidden = rows.length === 0;
    if (rows.length === 0) return;
    const table = fill_table(element('table', { className: 'texts' }), ['run', 'step', 'what happened'], rows);
    by_id('events').append(element('p', { textContent: `Skipped: ${whole(sum_of('skipped'))} steps, ${whole(sum_of('skipped_rounds'))} rounds.` + (more > 0 ? ` ${whole(more)} more events are not listed.` : '') }),
                           element('div', { className: 'scrolls' }, table));
  };

  const settings = () => {
    const machine = [['processor', 'processor'], ['cores', 'cores'], ['thinwire', 'version of thinwire'], ['weights_xxh3', 'XXH3 of the final weights']];
    const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
    const rows = keys.map((key) => [key, ...runs.map((run) => run.settings[key] ?? '')]);
    rows.push(...machine.filter(([key]) => runs.some((run) => run.summary[key] !== undefined))
      .map(([key, name]) => [name, ...runs.map((run) => String(run.summary[key] ?? ''))]));
    const differs = (row) => new Set(row.slice(1)).size > 1;
    const table = (some) => element('div', { className: 'scrolls' }, fill_table(element('table', { className: 'texts' }), ['setting', ...runs.map((run) => run.name)], some));
    const same = rows.filter((row) => !differs(row)), different = rows.filter(differs);
    const section = by_id('settings');
    if (different.length > 0) section.append(element('p', { className: 'note', textContent: 'In these the runs differ.' }), table(different));
    if (same.length > 0) {
      const one = element('div', { className: 'scrolls' }, fill_table(element('table', { className: 'texts' }), ['setting', 'value'], same.map((row) => row.slice(0, 2))));
      section.append(element('details', { open: different.length === 0 }, element('summary', { textContent: runs.length > 1 ? 'Settings that all runs share' : 'All settings' }), one));
    }
  };

  const controls = () => {
    const swatches = runs.map((run, i) => {
      const box = element('input', { type: 'checkbox', checked: shown[i] });
      box.addEventListener('change', () => { shown[i] = box.checked; draw_all(); });
      const swatch = element('span', { className: 'swatch' });
      by_id('shown').append(element('label', {}, box, swatch, run.name));
      return swatch;
    });
    const paint = () => swatches.forEach((swatch, i) => {
      swatch.style.borderColor = colour(i);
      swatch.style.borderTopStyle = ['solid', 'dashed', 'dotted', 'double'][Math.floor(i / 8) % 4];
    });
    paint();
    for (const [key, { name }] of Object.entries(positions)) {
      const radio = element('input', { type: 'radio', name: 'position', value: key, checked: key === position });
      radio.addEventListener('change', () => { position = key; draw_all(); });
      by_id('position').append(element('label', {}, radio, name));
    }
    dark.addEventListener('change', () => { paint(); draw_all(); });
    document.addEventListener('click', (event) => { if (event.target.dataset.copy) copy(event.target); });
  };

  document.title = title;
  by_id('title').textContent = title;
  const going_on = runs.filter((run) => !run.finished).length;
  by_id('about').textContent = `${runs.length} run${runs.length === 1 ? '' : 's'}` +
    (going_on > 0 ? `, of which ${going_on} had not ended when this report was written` : '');
  by_id('footer').textContent = `Written by thinwire ${version}. Bytes are those of rank 0. The charts are drawn by Chart.js (MIT licence).`;
  results();
  controls();
  training();
  step_time();
  compression();
  more();
  codecs();
  influence();
  events();
  settings();
  document.body.dataset.charts = String(charts.length);  // says that everything was drawn
})();
