-- The forms in which names and secrets are written: markup, command lines, truncated JSON and YAML.

-- fn_mask_terminal(text) → the text without the sequences that set colours in a terminal. The escape character may have
-- become U+FFFD, or be written as an escape. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_terminal(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
BEGIN
  IF strpos(p_text, '[') = 0 AND strpos(p_text, U&'\009b') = 0 THEN
    RETURN p_text;
  END IF;
  RETURN regexp_replace(p_text,
    '(?:(?:[\u001b\ufffd]|\\+(?:u001[Bb]|x1[Bb]|033|e))\[|\u009b)[0-9;:?]*[A-Za-z]', '', 'g');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_terminal IS 'A text without the sequences that set colours. Internal.';

-- fn_mask_markup(text) → XML and HTML with the values of secrets masked: of an element, and of attributes or elements
-- that say name and value. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_markup(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_named CONSTANT text := '=[^<>=]*' || public.fn_mask_names('[^a-z<>=]') || '\\*["'']'; -- ="db.password"
  c_value CONSTANT text := '(?:"[^"]+"|\\+"[^"]+"|''[^'']+'')';
  v_text text := p_text;
BEGIN
  -- <password kind="x">…</password>
  v_text := regexp_replace(v_text, '(<[a-z0-9_:.-]*' || public.fn_mask_names('')
    || '(?:\s[^<>]*)?>)\s*(?:<!\[CDATA\[[^\]]*\]\]>|[^<]+)', '\1•••', 'gi');
  IF v_text ~* '<[^<>]*\s(?:name|key|id|type)\s*=' THEN
    -- <add key="password" value="…"/> and <input value="…" type="password">
    v_text := regexp_replace(v_text, '(<[^<>]*\s(?:name|key|id|type)\s*' || c_named
      || '[^<>]*\s(?:value|content)\s*=\s*)' || c_value, '\1•••', 'gi');
    v_text := regexp_replace(v_text, '(<[^<>]*\s(?:value|content)\s*=\s*)' || c_value
      || '(?=[^<>]*\s(?:name|key|id|type)\s*' || c_named || ')', '\1•••', 'gi');
    -- <entry key="password">…</entry> and <property name="password"><value>…, but not what follows a field of a form
    v_text := regexp_replace(v_text, '(<(?!(?:input|button|label|select|option|form|fieldset|meta|img|a)\M)[^<>]*'
      || '\s(?:name|key)\s*' || c_named || '(?:[^<>]*[^<>/])?>(?:\s*<(?:value|val|string)>)?)\s*[^<\s][^<]*',
      '\1•••', 'gi');
  END IF;
  IF v_text ~* '</(?:name|key)>' THEN -- <key>password</key><string>…</string>
    v_text := regexp_replace(v_text, '(<(?:name|key)\M[^<]*' || public.fn_mask_names('[^a-z<]')
      || '\s*</(?:name|key)>\s*<(?:string|value|val|data)>)[^<]+', '\1•••', 'gi');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_markup IS 'XML and HTML with the values of secrets masked. Internal.';

-- fn_mask_commands(text) → command lines with the passwords masked that follow an option without the name of a secret,
-- or with one hyphen: curl -u, --user, sshpass -p, keytool -storepass. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_commands(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_value CONSTANT text := '(?:"[^"]*(?:"|$)|\\+"[^"]*(?:"|$)|''[^'']*(?:''|$)|[^\s"''-][^\s"'']*)';
  v_text text := p_text;
BEGIN
  IF strpos(v_text, 'curl') > 0 THEN
    v_text := regexp_replace(v_text, '(\mcurl\s(?:[^\n|;]*\s)?(?:-[uU]|--user|--proxy-user)[\s=]*'
      '(?:[^\s:"''\\]+:|\\*["''][^\s:"'']+:(?=[^\s"'']*["''])))[^\s"'']+', '\1•••', 'g');
    v_text := regexp_replace(v_text, '(\mcurl\s(?:[^\n|;]*\s)?(?:-[uU]|--user|--proxy-user)[\s=]*\\*["''][^:"'']+:)'
      '[^"'']+', '\1•••', 'g');
  END IF;
  IF strpos(v_text, '--user') > 0 OR strpos(v_text, '--proxy-user') > 0 THEN
    -- of another program: not 1000:1000 nor www-data:www-data, which are a user and a group
    v_text := regexp_replace(v_text, '((?:^|\s)--(?:proxy-)?user[\s=]+\\*["'']?[0-9._-]*[a-z@][^\s:"''/]*:)'
      '(?=[^\s"'']*[0-9])(?=[^\s"'']*[a-z])[^\s"'':/]+', '\1•••', 'gi');
  END IF;
  IF strpos(v_text, 'sshpass') > 0 THEN
    v_text := regexp_replace(v_text, '(\msshpass\s+-p\s*)' || c_value, '\1•••', 'g');
  END IF;
  IF strpos(v_text, '-') > 0 AND strpos(v_text, 'pass') > 0 THEN
    v_text := regexp_replace(v_text, '((?:^|\s)-(?:(?:src|dest)?(?:store|key)pass|pass(?:word|wd|phrase))\s+)'
      || c_value, '\1•••', 'g');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_commands IS
  'Command lines with the passwords of options such as curl -u masked. Internal.';

-- fn_mask_values(text) → JSON that is no whole document, and YAML, with the values of secrets masked that are more than
-- a word or a string: nested lists and objects up to their end, pairs of name and value in any order, and blocks of
-- lines. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_values(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_names CONSTANT text := public.fn_mask_names('(?:^|[^a-z])'::text);
  -- each text is read in one way only, because the longest match counts: a quote begins a string
  c_flat CONSTANT text := '[^\[\]{}"\\]|\\+(?:[^\\]|$)|"(?:[^"\\]|\\.)*(?:"|$)';
  c_end CONSTANT text := ')*(?:[\]}]|$)';
  c_one CONSTANT text := '[\[{](?:' || c_flat || c_end;
  c_two CONSTANT text := '[\[{](?:' || c_flat || '|' || c_one || c_end;
  c_three CONSTANT text := '[\[{](?:' || c_flat || '|' || c_two || c_end;
  c_four CONSTANT text := '[\[{](?:' || c_flat || '|' || c_three || c_end;
  c_deeper CONSTANT text := '(?:[\[{](?:[^\[\]{}]|[\[{][^\[\]{}]*[\]}])*){4}[\[{].*'; -- up to the end of the text
  c_tells CONSTANT text := '"(?:name|key|field|header|param|column|option|setting|attr|prop|var|env'
    '|(?:field|header|param|parameter|column|option|setting|attr|attribute|prop|property|var|variable|env|config)'
    '[_-]?(?:name|key))\\*"\s*:[^,:]*' || public.fn_mask_names('[^a-z,:]') || '\\*"';
  c_value CONSTANT text := '"[a-z_-]*val[a-z_-]*\\*"\s*:\s*';
  c_string CONSTANT text := '(?:"(?:[^"\\]|\\.)*(?:"|$)|\\+"[^"]*(?:"|$)|[^\s,"}]+)';
  v_text text := p_text;
BEGIN
  IF v_text ~ '[:=>]\s*[\[{]' THEN
    v_text := regexp_replace(v_text, '(' || c_names || '\\*["'']?\]?\s*[:=]{1,2}>?\s*)(?:' || c_four || '|' || c_deeper
      || ')', '\1•••', 'gi');
  END IF;
  IF v_text ~* 'val[a-z_-]*\\*"\s*:' THEN
    v_text := regexp_replace(v_text, '(' || c_tells || '\s*,\s*\\*' || c_value || ')' || c_string, '\1•••', 'gi');
    v_text := regexp_replace(v_text, '(' || c_value || ')' || c_string || '(?=\s*,\s*\\*' || c_tells || ')',
      '\1•••', 'gi');
  END IF;
  IF v_text ~ ':[ \t]*[|>][0-9+-]*[ \t]*\r?\n' THEN -- password: | and lines that are indented; a key: ends them
    v_text := regexp_replace(v_text, '(' || c_names || '\\*["'']?\s*:[ \t]*)[|>][0-9+-]*[ \t]*\r?\n'
      || '(?:[ \t]+(?!\s|[^\s:]+:(?:\s|$))[^\n]*(?:\n|$)|[ \t]*\r?\n)+', '\1•••' || chr(10), 'gi');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_values IS
  'Truncated JSON and YAML with nested values, pairs and blocks masked. Internal.';
